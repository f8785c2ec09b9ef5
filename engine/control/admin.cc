// Administration over the control socket.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/control/control_thread.h"
#include "engine/control/group.h"
#include "engine/control/log.h"

namespace wherry::engine {
namespace {

// Whether the other side's process is in the group, supplementary groups included.
bool in_group(int socket, gid_t own_group, gid_t group) {
  if (own_group == group) return true;
  std::vector<gid_t> groups(64);
  while (true) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return std::find(groups.begin(), groups.end(), group) != groups.end();
    }
    if (errno != ERANGE || groups.size() > 65536) return false;
    groups.resize(std::max<size_t>(bytes / sizeof(gid_t), groups.size() * 2));
  }
}

}  // namespace

Status ControlThread::check_admin(const Connection& connection) const {
  const shm::PeerCredentials& who = connection.peer;
  if (who.uid == 0 || who.uid == geteuid()) return {};
  if (admin_group_.has_value() &&
      in_group(const_cast<Connection&>(connection).socket().fd(), who.gid, *admin_group_)) {
    return {};
  }
  return {Code::kNotPermitted,
          "administration: wanted root, uid " + std::to_string(geteuid()) +
              (admin_group_.has_value() ? " or the group " + context_.config.admin_group : "") +
              ", got uid " + std::to_string(who.uid) + "; ask one of these, or set admin_group"};
}

StatusReport ControlThread::status_report() const {
  StatusReport report;
  report.name = context_.config.name;
  report.version = WHERRY_VERSION;
  report.pid = static_cast<uint32_t>(getpid());
  report.state = engine_state_name(context_.state);
  report.reason = context_.reason;
  report.incarnation = context_.incarnation;
  report.uptime_ms = (monotonic_ns() - context_.start_ns) / 1'000'000;
  report.pollers = context_.poller_reports;
  report.clients = static_cast<uint32_t>(context_.sessions.size());
  return report;
}

void ControlThread::administer(Connection& connection, ReplyTo to, const Admin& admin) {
  if (Status status = check_admin(connection); !status.ok()) {
    context_.stats->record_error(shm::ErrorId::kRequestRefused, "administration",
                                 status.to_string());
    return connection.send(error_reply(to, status));
  }
  connection.role = Connection::Role::kAdmin;
  context_.timers.cancel(connection.deadline);
  const auto change = [&](LifeRequest::Kind kind, const char* name) {
    log_info(std::string("asked to ") + name + " by uid " + std::to_string(connection.peer.uid) +
             ", pid " + std::to_string(connection.peer.pid) + ": " + admin.reason);
    connection.send(ok_reply(to));
    carry_out({kind,
               admin.reason.empty() ? std::string(name) + " by an administrator" : admin.reason,
               0});
  };
  switch (admin.command) {
    case Admin::Command::kStatus:
      return connection.send(status_reply(to, status_report()));
    case Admin::Command::kTransports:
      return connection.send(transports_reply(to, context_.transports));
    case Admin::Command::kClients: {
      std::vector<ClientReport> clients;
      for (const auto& [id, session] : context_.sessions) clients.push_back(session->report());
      return connection.send(clients_reply(to, clients));
    }
    case Admin::Command::kDrain:
      return change(LifeRequest::Kind::kDrain, "drain");
    case Admin::Command::kStop:
      return change(LifeRequest::Kind::kStop, "stop");
    case Admin::Command::kKill:
      return change(LifeRequest::Kind::kKill, "kill");
  }
}

}  // namespace wherry::engine
