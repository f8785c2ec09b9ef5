// The control socket: SOCK_SEQPACKET messages with descriptors, and the listening side.
//
// A message is a text (JSON, see protocol.h) of at most kMaxPayloadBytes and up to kMaxDescriptors
// descriptors. Texts above kMaxInlineBytes travel as a sealed memfd, which both ends hide. Sockets
// are non-blocking and close-on-exec; each object belongs to one thread. Never for a poller.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::shm {

inline constexpr size_t kMaxInlineBytes = 64 * 1024;
inline constexpr size_t kMaxPayloadBytes = 16 * 1024 * 1024;
inline constexpr size_t kMaxDescriptors = 16;

struct ControlMessage {
  std::string text;
  std::vector<UniqueFd> descriptors;
};

struct PeerCredentials {
  pid_t pid = 0;  // informational: 0 when the peer is in a PID namespace unseen from here
  uid_t uid = 0;
  gid_t gid = 0;
};

class ControlSocket {
 public:
  ControlSocket() = default;
  explicit ControlSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Connects to a listening engine. UNREACHABLE names the path and what to check.
  static Result<ControlSocket> connect(const std::string& path);

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

  // Queues the message and sends what the kernel takes now. Descriptors are duplicated by the
  // kernel when sent: a queued message keeps its own. UNREACHABLE once the other side has hung up,
  // NO_RESOURCES when it does not read and kMaxQueued messages, or kMaxQueuedBytes, wait.
  Status send(std::string text, std::vector<UniqueFd> descriptors = {});

  // Sends queued messages; call when the socket is writable. `wants_write()` says whether any wait.
  Status flush();
  bool wants_write() const { return !queue_.empty(); }

  // Whether the other side has read most of what was sent; once it has, the socket is writable.
  bool other_side_reads() const;

  // The next message; nullopt when none is there now; UNREACHABLE after hang-up; INVALID_ARGUMENT
  // for a message that breaks the limits above (the connection should be closed then).
  Result<std::optional<ControlMessage>> receive();
  // Who gets the descriptors of messages that receive() refuses, for a thread that must not close
  // them itself: that can block, by what they lead to. Without it they are closed.
  using Discard = void (*)(std::vector<UniqueFd> descriptors);
  void discard_with(Discard hook) { discard_ = hook; }

  Result<PeerCredentials> peer() const;

  static constexpr size_t kMaxQueued = 1024;
  static constexpr size_t kMaxQueuedBytes = 64 * 1024 * 1024;  // with the texts in memfds

 private:
  struct Queued {
    ControlMessage message;
    size_t bytes = 0;
  };

  Status send_now(const ControlMessage& message, bool* sent);
  void discard(std::vector<UniqueFd> descriptors) const {
    if (discard_ != nullptr) discard_(std::move(descriptors));
  }

  UniqueFd fd_;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  Discard discard_ = nullptr;
};

// Binds and listens at `path` (at most 107 bytes) with the given file mode; an existing socket file
// is replaced, so hold the engine lock first.
Result<UniqueFd> listen_control(const std::string& path, mode_t mode);

// The next connection; nullopt when none waits.
Result<std::optional<ControlSocket>> accept_control(int listener);

}  // namespace wherry::shm
