// A wherryd in a process of its own, to be killed and started again, and what a client is told of
// it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "clientlib/client.h"
#include "tests/temporary_directory.h"

namespace wherry::test {

inline constexpr uint64_t kWaitMs = 120'000;  // only catches hangs

// A wherryd, or another program built from its source, in a process of its own.
class EngineProcess {
 public:
  explicit EngineProcess(const std::string& run_dir, const std::string& program = "wherryd")
      : run_dir_(run_dir), program_(std::string(WHERRY_BIN_DIR) + "/" + program) {
    start();
  }
  ~EngineProcess() {
    if (pid_ > 0) end(SIGKILL);
  }

  // With these keys of a config.
  void start(const std::string& config = R"("pollers": [{"idle": "sleep"}])") {
    const std::string path = run_dir_ + ".json";
    tests::write_file(path, "{" + config + "}");
    pid_ = fork();
    if (pid_ != 0) return;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    execl(program_.c_str(), program_.c_str(), "--run-dir", run_dir_.c_str(), "--config",
          path.c_str(), nullptr);
    _exit(127);
  }

  // The exit status, or minus the signal.
  int end(int signal) {
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  void send(int signal) const { kill(pid_, signal); }

 private:
  std::string run_dir_;
  std::string program_;
  pid_t pid_ = -1;
};

// What a client was told, and waiting for it.
class States {
 public:
  std::function<void(const EngineState&)> callback() {
    return [this](const EngineState& state) {
      std::lock_guard lock(mutex_);
      seen_.push_back(state);
      changed_.notify_all();
    };
  }
  bool wait_for(EngineLife life, uint32_t attached) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kWaitMs), [&] {
      return std::any_of(seen_.begin(), seen_.end(), [&](const EngineState& state) {
        return state.life == life && state.attached >= attached;
      });
    });
  }
  EngineState last() {
    std::lock_guard lock(mutex_);
    return seen_.back();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<EngineState> seen_;
};

// Clients of an engine that comes and goes.
class ClientRestart : public ::testing::Test {
 protected:
  Client attach(const std::string& instance, States* states) {
    AttachOptions options;
    options.instance = instance;
    options.run_dir = run_dir_;
    options.wait_ms = kWaitMs;
    options.back_off_min_ms = 5;
    if (states != nullptr) options.on_state = states->callback();
    Result<Client> client = Client::attach(options);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return *client;
  }

  static Geometry geometry(uint32_t blocks = 64, uint32_t inner_dim = 512) {
    Geometry g;
    g.num_blocks = blocks;
    g.num_layers = 2;
    g.outer_dim = 2;
    g.page_size = 16;
    g.inner_dim = inner_dim;
    return g;
  }
  static Result<Completion> wait(Result<TransferCompleteNotification> request) {
    if (!request.ok()) return request.status();
    return request->wait(deadline_in_ms(kWaitMs));
  }

  tests::TemporaryDirectory directory_;
  std::string run_dir_ = directory_ / "run";
};

}  // namespace wherry::test
