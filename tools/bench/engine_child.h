// EngineChild: an engine in a process of its own, made by fork.
//
// start() before this process has any other thread. Main thread only. However this process ends,
// the engine's does too; the object's end stops it. The engine has one poller, knows the transport
// `null`, and keeps all it puts on disk below the directory it was given.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "engine/poller/idle.h"
#include "shm/status.h"

namespace wherry::bench {

struct EngineChildOptions {
  std::string root;  // a directory of this run's own
  std::string name = "bench";
  int core = -1;  // of the poller; -1 = not pinned
  engine::IdleStrategy idle = engine::IdleStrategy::kAdaptive;
  uint32_t copy_threads = 0;
};

class EngineChild {
 public:
  // What the engine refuses, or NO_RESOURCES.
  static Result<EngineChild> start(const EngineChildOptions& options);
  EngineChild(EngineChild&& other) noexcept;
  EngineChild& operator=(EngineChild&& other) = delete;
  ~EngineChild();

  // Stops all its threads where they are, so that their cores are free, until resume(). INTERNAL
  // when the engine has died.
  Status pause();
  void resume();

  // Ends it. INTERNAL when it had died, or ends otherwise than it should.
  Status stop();

  pid_t pid() const { return pid_; }
  const std::string& run_dir() const { return run_dir_; }

 private:
  EngineChild(pid_t pid, std::string run_dir) : pid_(pid), run_dir_(std::move(run_dir)) {}

  pid_t pid_;
  std::string run_dir_;
};

}  // namespace wherry::bench
