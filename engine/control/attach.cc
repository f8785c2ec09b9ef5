// Attaching: from a hello to a session.
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/control/control_thread.h"
#include "engine/control/foreign.h"
#include "engine/control/log.h"
#include "engine/control/random.h"
#include "shm/layout.h"
#include "shm/protocol.h"

namespace wherry::engine {
namespace {

// What to add to the engine's CLOCK_MONOTONIC to get the client's. Clocks differ only between time
// namespaces; within one, the way from the client makes its clock look late, never early.
int64_t clock_offset(int64_t client_ns) {
  const int64_t offset = client_ns - static_cast<int64_t>(monotonic_ns());
  constexpr int64_t kDelayNs = 1'000'000'000;
  return offset <= 0 && offset > -kDelayNs ? 0 : offset;
}

std::string version_text(uint32_t major, uint32_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

Status ControlThread::check_hello(const Hello& hello,
                                  const std::vector<shm::UniqueFd>& descriptors) const {
  if (context_.state != shm::EngineState::kRunning) {
    return {Code::kDraining, "attach: wanted a running engine, got " + context_.config.name +
                                 ", which drains (" + context_.reason +
                                 "); attach again when it is back"};
  }
  if (hello.layout_major != shm::kLayoutMajor) {
    return {Code::kVersionMismatch,
            "attach: wanted memory layout version " +
                version_text(shm::kLayoutMajor, shm::kLayoutMinor) + " of the engine, got " +
                version_text(hello.layout_major, hello.layout_minor) +
                " of the client; install client library and engine of one release"};
  }
  if (descriptors.size() != 1 || !is_pidfd(descriptors.front().get())) {
    return {Code::kInvalidArgument,
            "attach: wanted one descriptor, a pidfd of the client, got " +
                std::string(descriptors.size() == 1 ? "another kind"
                                                    : std::to_string(descriptors.size())) +
                "; send one made by pidfd_open"};
  }
  return check_name_free(hello);
}

Status ControlThread::check_name_free(const Hello& hello) const {
  if (const Session* owner = context_.find_session(hello.instance, hello.rank)) {
    const SessionIdentity& who = owner->identity();
    const bool ending = owner->state() != Session::State::kActive;
    return {Code::kAlreadyExists,
            "attach as " + who.name() + ": wanted a name that is free, got one that is pid " +
                (who.pid != 0 ? std::to_string(who.pid) : "unknown (in another PID namespace)") +
                "'s" +
                (ending ? ", whose session is just ending; try again"
                        : "; use another instance or rank, or end that process")};
  }
  const size_t used = context_.sessions.size();
  if (used >= context_.config.limits.clients) {
    const auto ending = std::count_if(
        context_.sessions.begin(), context_.sessions.end(),
        [](const auto& item) { return item.second->state() != Session::State::kActive; });
    return {Code::kNoResources, "limits.clients: wanted one more, got a limit of " +
                                    std::to_string(context_.config.limits.clients) + " and " +
                                    std::to_string(used) + " attached, " + std::to_string(ending) +
                                    " of them just ending; detach some or raise the limit"};
  }
  return {};
}

void ControlThread::attach(Connection& connection, ReplyTo to, const Hello& hello,
                           std::vector<shm::UniqueFd> descriptors) {
  const std::string name = hello.instance + "/" + std::to_string(hello.rank);
  to.version = std::min(hello.protocol_max, shm::protocol::kVersion);
  Status status = check_hello(hello, descriptors);
  SessionIdentity identity;
  identity.session = last_session_ + 1;
  identity.incarnation = random_u64();
  identity.instance = hello.instance;
  identity.rank = hello.rank;
  identity.pid = static_cast<uint32_t>(connection.peer.pid);
  identity.uid = connection.peer.uid;
  identity.protocol = to.version;
  identity.features = hello.features & shm::kFeatures;
  identity.clock_offset_ns = clock_offset(hello.clock_ns);
  shm::UniqueFd own_pidfd(fcntl(own_pidfd_.get(), F_DUPFD_CLOEXEC, 0));
  if (status.ok() && !own_pidfd.valid()) {
    status = errno_status(Code::kNoResources, "attach: duplicating a descriptor", errno);
  }
  if (status.ok()) {
    identity.pidfd = std::move(descriptors.front());
    status = watch(identity.pidfd.get(), EPOLLIN, Tag::kPidfd, identity.session);
  }
  shm::ClientRow* row = nullptr;
  if (status.ok()) {
    row = context_.stats->add_client({identity.instance, identity.session, identity.incarnation,
                                      identity.rank, identity.pid, identity.uid});
    if (row == nullptr) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, identity.pidfd.get(), nullptr);
      status = {Code::kNoResources,
                "attach: wanted a free row in the stats file, got none; detach a client"};
    }
  }
  if (!status.ok()) {
    context_.stats->record_error(shm::ErrorId::kAttachRefused, name, status.to_string());
    log_client("client " + name + " refused: " + status.to_string());
    return connection.send(error_reply(to, status));
  }
  HelloReply reply;
  reply.protocol = identity.protocol;
  reply.engine = context_.config.name;
  reply.engine_incarnation = context_.incarnation;
  reply.session = identity.session;
  reply.incarnation = identity.incarnation;
  reply.features = identity.features;
  reply.state = engine_state_name(context_.state);
  reply.limits = context_.config.limits_of(identity.instance);
  reply.pollers = static_cast<uint32_t>(context_.pollers.size());
  reply.clock_offset_ns = identity.clock_offset_ns;
  reply.default_deadline_ms = context_.config.default_deadline_ms;

  last_session_ = identity.session;
  context_.timers.cancel(connection.deadline);
  connection.role = Connection::Role::kClient;
  connection.session = std::make_shared<Session>(&context_, std::move(identity), &connection, row);
  context_.sessions.emplace(reply.session, connection.session);
  context_.session_of[{hello.instance, hello.rank}] = reply.session;
  std::vector<shm::UniqueFd> to_client;
  to_client.push_back(std::move(own_pidfd));
  connection.send(hello_reply(to, reply), std::move(to_client));
  log_client("client " + name + " attached: session " + std::to_string(reply.session) + ", pid " +
             std::to_string(connection.peer.pid) + ", uid " + std::to_string(connection.peer.uid));
}

}  // namespace wherry::engine
