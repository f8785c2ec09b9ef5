#include "tools/bench/engine_child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "clientlib/types.h"
#include "engine/engine.h"
#include "shm/file_descriptor.h"

namespace wherry::bench {
namespace {

constexpr uint64_t kStopNs = 20'000'000'000;

engine::Config make_config(const EngineChildOptions& options, const std::string& run_dir) {
  engine::Config config;
  config.name = options.name;
  config.run_dir = run_dir;
  config.limits.clients = 256;
  config.transports.null.enabled = true;
  config.transports.memory.copy_threads = options.copy_threads;
  engine::PollerConfig& poller = config.pollers.front();
  poller.idle = options.idle;
  if (options.core >= 0) {
    poller.pin = engine::Pin::kCpu;
    poller.cpu = static_cast<uint32_t>(options.core);
  }
  return config;
}

void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(fd, text.data() + at, text.size() - at);
    if (count <= 0) return;
    at += static_cast<size_t>(count);
  }
}

// The child's life: says how its start went through `ready`: the code in one byte, then the
// message.
[[noreturn]] void run_child(const EngineChildOptions& options, const std::string& run_dir,
                            pid_t parent, shm::UniqueFd ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // The engine logs to standard output, which is for figures.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) dup2(null, STDOUT_FILENO);
  // Claims of cores go there too: another bench, or a real engine, is not refused because of us.
  setenv("WHERRY_RUN_DIR", options.root.c_str(), 1);
  engine::EngineOptions engine_options;
  engine_options.allow_null = true;
  engine_options.handle_signals = true;
  Result<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::start(make_config(options, run_dir), engine_options);
  write_all(ready.get(), static_cast<char>(engine.code()) + engine.status().message());
  ready.reset();
  if (!engine.ok()) _exit(1);
  const Status end = (*engine)->run();
  engine->reset();
  _exit(end.ok() ? 0 : 1);
}

std::string read_all(int fd) {
  std::string text;
  char piece[512];
  for (;;) {
    const ssize_t count = read(fd, piece, sizeof(piece));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece, static_cast<size_t>(count));
  }
}

Status died(int status) {
  const std::string how = WIFSIGNALED(status)
                              ? "death by signal " + std::to_string(WTERMSIG(status))
                              : "exit status " + std::to_string(WEXITSTATUS(status));
  return {Code::kInternal, "the bench's engine: wanted it to live until it is stopped, got " + how +
                               "; run again, and report it if it happens twice"};
}

// Waits for a change of the child's state; false at the deadline.
bool wait_for_child(pid_t pid, int options, uint64_t deadline_ns, int* status) {
  for (;;) {
    const pid_t got = waitpid(pid, status, options | WNOHANG);
    if (got == pid || (got < 0 && errno != EINTR)) return true;
    if (monotonic_ns() >= deadline_ns) return false;
    const timespec moment{0, 20'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace

Result<EngineChild> EngineChild::start(const EngineChildOptions& options) {
  const std::string run_dir = options.root + "/" + options.name;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return errno_status(Code::kNoResources, "making a pipe to the engine's process", errno);
  }
  const shm::UniqueFd ready(ends[0]);
  shm::UniqueFd child_end(ends[1]);
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return errno_status(Code::kNoResources, "starting the engine's process", errno);
  if (pid == 0) run_child(options, run_dir, parent, std::move(child_end));
  child_end.reset();
  EngineChild child(pid, run_dir);
  const std::string said = read_all(ready.get());
  if (said.empty()) {
    return Status(Code::kInternal,
                  "starting the engine: wanted it to say how it went, got nothing; run again");
  }
  if (said[0] != static_cast<char>(Code::kOk)) {
    return Status(static_cast<Code>(said[0]), said.substr(1)).with_context("starting the engine");
  }
  return child;
}

EngineChild::EngineChild(EngineChild&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), run_dir_(std::move(other.run_dir_)) {}

EngineChild::~EngineChild() { static_cast<void>(stop()); }

Status EngineChild::pause() {
  int status = 0;
  kill(pid_, SIGSTOP);
  if (!wait_for_child(pid_, WUNTRACED, monotonic_ns() + kStopNs, &status)) {
    return {Code::kTimedOut,
            "the bench's engine: wanted it to stand still, got no answer; run again"};
  }
  if (WIFSTOPPED(status)) return {};
  pid_ = -1;
  return died(status);
}

void EngineChild::resume() {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

Status EngineChild::stop() {
  if (pid_ <= 0) return {};
  const pid_t pid = std::exchange(pid_, -1);
  kill(pid, SIGTERM);
  kill(pid, SIGCONT);
  int status = 0;
  if (!wait_for_child(pid, 0, monotonic_ns() + kStopNs, &status)) {
    kill(pid, SIGKILL);
    wait_for_child(pid, 0, UINT64_MAX, &status);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Status() : died(status);
}

}  // namespace wherry::bench
