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
  // NO_RESOURCES when it does not read and `kMaxQueued` messages wait.
  Status send(std::string text, std::vector<UniqueFd> descriptors = {});

  // Sends queued messages; call when the socket is writable. `wants_write()` says whether any wait.
  Status flush();
  bool wants_write() const { return !queue_.empty(); }

  // The next message; nullopt when none is there now; UNREACHABLE after hang-up; INVALID_ARGUMENT
  // for a message that breaks the limits above (the connection should be closed then).
  Result<std::optional<ControlMessage>> receive();

  Result<PeerCredentials> peer() const;

  static constexpr size_t kMaxQueued = 1024;

 private:
  Status send_now(const ControlMessage& message, bool* sent);

  UniqueFd fd_;
  std::deque<ControlMessage> queue_;
};

// Binds and listens at `path` (at most 107 bytes) with the given file mode; an existing socket file
// is replaced, so hold the engine lock first.
Result<UniqueFd> listen_control(const std::string& path, mode_t mode);

// The next connection; nullopt when none waits.
Result<std::optional<ControlSocket>> accept_control(int listener);

}  // namespace wherry::shm
