// One connection to an engine for administration, and the process behind it.
//
// One thread; every call is bounded by its timeout. UNREACHABLE: no engine runs there, or it hung
// up; TIMED_OUT: it does not answer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "shm/control_socket.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::tools {

class AdminLink {
 public:
  static Result<AdminLink> connect(const std::string& run_dir);

  // Sends an `admin` command and returns the text of its reply, an error reply too.
  Result<std::string> ask(const std::string& command, const std::string& reason,
                          std::chrono::milliseconds timeout);

  // Returns once the engine's process is gone; where that cannot be watched (no pidfd), once it has
  // hung up. Without a timeout for ever.
  Status wait_until_gone(std::optional<std::chrono::milliseconds> timeout);

 private:
  AdminLink(shm::ControlSocket socket, shm::UniqueFd process)
      : socket_(std::move(socket)), process_(std::move(process)) {}

  shm::ControlSocket socket_;
  shm::UniqueFd process_;  // pidfd of the engine; invalid when the kernel gives none
};

}  // namespace wherry::tools
