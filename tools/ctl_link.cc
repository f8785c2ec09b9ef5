#include "tools/ctl_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "shm/protocol.h"

namespace wherry::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRequestId = 1;

#ifndef SO_PEERPIDFD
constexpr int SO_PEERPIDFD = 77;  // NOLINT: the kernel's name
#endif

// A pidfd of the process that listens. The kernel's own, where it has that: the pid means nothing
// when the engine is in a PID namespace that is not seen from here.
shm::UniqueFd process_behind(const shm::ControlSocket& socket) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
    return shm::UniqueFd(pidfd);
  }
  const Result<shm::PeerCredentials> peer = socket.peer();
  if (!peer.ok() || peer->pid == 0) return {};
  return shm::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer->pid, 0)));
}

// False when the time ran out.
bool wait_for(int fd, short events, std::optional<Clock::time_point> deadline) {
  pollfd entry{fd, events, 0};
  while (true) {
    int timeout = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<milliseconds>(*deadline - Clock::now()).count();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
    }
    const int ready = poll(&entry, 1, timeout);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // the next call on the descriptor tells
  }
}

bool is_reply(const std::string& text) {
  const nlohmann::json message = nlohmann::json::parse(text, nullptr, false);
  return message.is_object() && message.value("type", nlohmann::json()) == "reply" &&
         message.value("id", nlohmann::json()) == kRequestId;
}

}  // namespace

Result<AdminLink> AdminLink::connect(const std::string& run_dir) {
  Result<shm::ControlSocket> socket = shm::ControlSocket::connect(run_dir + "/engine.sock");
  if (!socket.ok()) return socket.status();
  shm::UniqueFd process = process_behind(*socket);
  return AdminLink(std::move(*socket), std::move(process));
}

Result<std::string> AdminLink::ask(const std::string& command, const std::string& reason,
                                   milliseconds timeout) {
  nlohmann::json request = {{"type", "admin"},
                            {"version", shm::protocol::kVersion},
                            {"id", kRequestId},
                            {"command", command}};
  if (!reason.empty()) request["reason"] = reason;
  const auto deadline = Clock::now() + timeout;
  using Handler = nlohmann::json::error_handler_t;
  Status status = socket_.send(request.dump(-1, ' ', false, Handler::replace));
  while (status.ok()) {
    const Result<std::optional<shm::ControlMessage>> message = socket_.receive();
    if (!message.ok()) return message.status();
    if (message->has_value()) {
      if (is_reply((*message)->text)) return (*message)->text;
      continue;  // an event
    }
    const auto events = static_cast<short>(POLLIN | (socket_.wants_write() ? POLLOUT : 0));
    if (!wait_for(socket_.fd(), events, deadline)) {
      return Status(Code::kTimedOut, "engine: wanted an answer within " +
                                         std::to_string(timeout.count()) +
                                         " ms, got none; see its log, or wherry-stat");
    }
    status = socket_.flush();
  }
  return status;
}

Status AdminLink::wait_until_gone(std::optional<milliseconds> timeout) {
  std::optional<Clock::time_point> deadline;
  if (timeout) deadline = Clock::now() + *timeout;
  Status late(Code::kTimedOut, "engine: wanted its process gone within " +
                                   std::to_string(timeout.value_or(milliseconds()).count()) +
                                   " ms, got it still there; wait longer, or use stop or kill");
  if (process_.valid()) return wait_for(process_.get(), POLLIN, deadline) ? Status() : late;
  while (true) {
    if (!wait_for(socket_.fd(), POLLIN, deadline)) return late;
    if (!socket_.receive().ok()) return {};
  }
}

}  // namespace wherry::tools
