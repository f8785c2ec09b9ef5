// The run directory of an engine and the lock that makes it the engine's.
//
// Control thread, at start and end; open() may wait. The directory holds engine.lock (an OFD write
// lock, with "<pid> <start time>" as text), engine.sock and stats. Leftovers of a former engine are
// no obstacle: the lock alone says whether one lives. The lock ends with this object, or with the
// process.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "engine/control/config.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

struct RunDirOptions {
  // How long to wait for a former engine that has lost the lock, but whose process is not gone yet.
  std::chrono::milliseconds takeover_timeout = std::chrono::seconds(10);
};

class RunDir {
 public:
  // Makes the directory and the missing ones above it, checks that it is a directory (no link) of
  // this user that nobody else can write to, and takes the lock. ALREADY_EXISTS names the pid of a
  // live owner; TIMED_OUT a former owner that does not go; NOT_PERMITTED what is wrong with the
  // directory. `config.run_dir` empty = the rule of shm/run_root.h.
  static Result<RunDir> open(const Config& config, const RunDirOptions& options = {});

  RunDir() = default;
  RunDir(RunDir&&) = default;
  RunDir& operator=(RunDir&&) = default;

  const std::string& path() const { return path_; }
  std::string socket_path() const { return path_ + "/engine.sock"; }
  std::string stats_path() const { return path_ + "/stats"; }

  // What a person should know, such as a directory that is not on tmpfs.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Whether a former engine was here and did not end by itself (its lock file held a process).
  bool taken_over() const { return taken_over_; }

  // Clean exit: removes engine.sock and gives the lock up. Lock file and stats stay.
  void close();

 private:
  std::string path_;
  shm::UniqueFd lock_;
  std::vector<std::string> warnings_;
  bool taken_over_ = false;
};

}  // namespace wherry::engine
