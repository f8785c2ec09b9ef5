// OwnDirectory: a directory of this run's own, gone with the object. Main thread.
#pragma once

#include <string>
#include <utility>

#include "shm/status.h"

namespace wherry::bench {

class OwnDirectory {
 public:
  // In $WHERRY_RUN_DIR, else in /dev/shm or $TMPDIR. NO_RESOURCES when none can be made there.
  static Result<OwnDirectory> make();
  OwnDirectory(OwnDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  OwnDirectory& operator=(OwnDirectory&& other) = delete;
  ~OwnDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit OwnDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace wherry::bench
