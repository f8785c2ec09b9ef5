// An engine in a process of its own, forked and not executed: for what ends one, and for counting
// what it holds.
//
// Only for tests that have no threads when they make one.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "shm/control_socket.h"
#include "tests/support/raw_client.h"
#include "tests/temporary_directory.h"

namespace wherry::test {

// fork(), with a child that does not outlive this process.
inline pid_t forked() {
  const pid_t child = fork();
  if (child < 0) std::abort();  // to kill() a -1 would mean everybody
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return child;
}

// A forked child; killed and reaped with the object.
class ForkedProcess {
 public:
  ForkedProcess() = default;
  ~ForkedProcess() {
    if (pid_ > 0 && !reaped_) ::kill(pid_, SIGKILL);
    exit_status();
  }
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  // Once. True in the child, which has to end by _exit().
  bool start() { return (pid_ = forked()) == 0; }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Waits for its end; a signal is negative.
  int exit_status() {
    int status = 0;
    if (pid_ > 0 && !reaped_ && waitpid(pid_, &status, 0) == pid_) {
      reaped_ = true;
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return status_;
  }

 private:
  pid_t pid_ = 0;
  bool reaped_ = false;
  int status_ = 0;
};

class ForkedEngine {
 public:
  // `prepare` is called in it, before the engine starts.
  explicit ForkedEngine(const engine::EngineOptions& options = {},
                        const std::function<void()>& prepare = {}) {
    const engine::Config config = test_config(directory_);
    run_dir_ = config.run_dir;
    if (!process_.start()) return;
    quiet_engine_log();
    if (prepare) prepare();
    auto engine = engine::Engine::start(config, options);
    _exit(engine.ok() && (*engine)->run().ok() ? 0 : 100);
  }

  // Waits until clients can attach.
  const std::string& socket_path() {
    path_ = run_dir_ + "/engine.sock";
    while (!shm::ControlSocket::connect(path_).ok()) std::this_thread::yield();
    return path_;
  }
  void signal(int number) const { process_.signal(number); }
  int exit_status() { return process_.exit_status(); }
  const std::string& run_dir() const { return run_dir_; }
  const tests::TemporaryDirectory& directory() const { return directory_; }
  pid_t pid() const { return process_.pid(); }

 private:
  tests::TemporaryDirectory directory_;
  std::string run_dir_;
  std::string path_;
  ForkedProcess process_;
};

}  // namespace wherry::test
