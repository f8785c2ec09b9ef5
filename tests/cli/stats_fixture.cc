// stats_fixture DIR STATE [COMMAND ...]: an engine's run directory without an engine.
//
// Writes DIR/stats and DIR/engine.lock, holds the lock as an engine does while COMMAND runs, and
// exits with its exit status. STATE: live (running), stopped, old (running, but the last beat was
// in 1970). Without COMMAND the lock is free again, as after a crash.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "shm/file_descriptor.h"
#include "shm/stats_writer.h"

namespace {

using wherry::shm::StatsWriter;

void fill(StatsWriter& stats, bool stopped) {
  stats.set_state(stopped ? wherry::shm::EngineState::kStopped : wherry::shm::EngineState::kRunning,
                  stopped ? "asked to" : "");
  stats.set_transport(1, "memory", 3, true, "", "");
  wherry::shm::PollerStats* poller = stats.add_poller(0, -1, 1);
  poller->completed[1][0].add(12);
  poller->bytes[1].add(3 << 20);
  poller->latency_ns.record(1500);
  stats.add_client({"prefill", 1, 2, 0, 3, 4});
  stats.record_error(wherry::shm::ErrorId::kClientLost, "decode/1", "killed");
}

int run(char** command) {
  const pid_t child = fork();
  if (child < 0) return 99;
  if (child == 0) {
    execvp(command[0], command);
    _exit(98);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 99;
  const std::string directory = argv[1];
  const std::string state = argv[2];
  wherry::shm::UniqueFd lock(
      open((directory + "/engine.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock question {};
  question.l_type = F_WRLCK;
  if (!lock.valid() || fcntl(lock.get(), F_OFD_SETLK, &question) != 0) return 99;
  const std::string owner = std::to_string(getpid()) + " 1\n";
  if (ftruncate(lock.get(), 0) != 0 || write(lock.get(), owner.data(), owner.size()) < 0) return 99;

  wherry::shm::StatsOptions options;
  options.engine_name = "fixture";
  if (state == "old") options.wall_clock = [] { return uint64_t{1'000'000'000}; };
  auto stats = StatsWriter::create(directory + "/stats", options);
  if (!stats.ok()) {
    std::fprintf(stderr, "%s\n", stats.status().to_string().c_str());
    return 99;
  }
  fill(*stats, state == "stopped");
  return argc == 3 ? 0 : run(argv + 3);
}
