// An engine and a client as two processes with nothing between them but the two segments of a
// channel.
//
// For stress tests of the contract in memory. The client is forked, so call start_client() before
// any thread exists. It is killed with the object, and with this process.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "shm/segment.h"

namespace wherry::test {

class ChildProcess {
 public:
  ChildProcess() = default;
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    if (pid_ > 0) kill_and_wait();
  }

  void set(pid_t pid) { pid_ = pid; }

  // "exit 3" or "signal 9"; waits for the end.
  std::string wait() { return collect(0).value_or("lost"); }
  // The same, or nothing while it lives.
  std::optional<std::string> ended() { return collect(WNOHANG); }

  void kill_and_wait() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    wait();
  }

 private:
  std::optional<std::string> collect(int flags) {
    if (pid_ <= 0) return end_;
    int status = 0;
    if (waitpid(pid_, &status, flags) != pid_) return std::nullopt;
    pid_ = -1;
    end_ = WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                             : "signal " + std::to_string(WTERMSIG(status));
    return end_;
  }

  pid_t pid_ = -1;
  std::string end_ = "never started";
};

struct ClientEnd {
  shm::MappedSegment c2e;
  shm::MappedSegment e2c;
  shm::ClientWords* words = nullptr;
  const shm::EngineWords* engine = nullptr;
};

class TwoProcesses {
 public:
  explicit TwoProcesses(shm::ChannelSizes sizes)
      : c2e_header(shm::make_header(shm::SegmentKind::kC2e, sizes)),
        e2c_header(shm::make_header(shm::SegmentKind::kE2c, sizes)) {}

  const shm::SegmentHeader c2e_header;
  const shm::SegmentHeader e2c_header;
  shm::MappedSegment c2e;  // read-only
  shm::MappedSegment e2c;
  const shm::ClientWords* client = nullptr;
  shm::EngineWords* words = nullptr;
  ChildProcess child;

  // Makes the segments, forks a client that maps them and runs `work` (its result is the exit
  // code), and seals c2e once it has.
  template <typename Work>
  void start_client(const Work& work) {
    Result<shm::UniqueFd> c2e_made = shm::create_c2e(c2e_header);
    ASSERT_TRUE(c2e_made.ok()) << c2e_made.status().to_string();
    Result<shm::E2cSegment> e2c_made = shm::create_e2c(e2c_header);
    ASSERT_TRUE(e2c_made.ok()) << e2c_made.status().to_string();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    shm::UniqueFd mapped_read(ends[0]);
    shm::UniqueFd mapped_write(ends[1]);
    std::fflush(nullptr);  // or a child that ends might print it once more
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(100);
      _exit(run_client(c2e_made->get(), e2c_made->fd.get(), mapped_write.get(), work));
    }
    ASSERT_GT(pid, 0);
    child.set(pid);
    mapped_write.reset();
    char byte = 0;
    ASSERT_EQ(read(mapped_read.get(), &byte, 1), 1) << "the client did not map its segments";
    const Status sealed = shm::seal_c2e(c2e_made->get());
    ASSERT_TRUE(sealed.ok()) << sealed.to_string();
    Result<shm::MappedSegment> mapping =
        shm::MappedSegment::map(c2e_made->get(), c2e_header.total_bytes, shm::Access::kRead);
    ASSERT_TRUE(mapping.ok()) << mapping.status().to_string();
    c2e = std::move(*mapping);
    e2c = std::move(e2c_made->mapping);
    client = c2e.at<const shm::ClientWords>(c2e_header.words_offset);
    words = e2c.at<shm::EngineWords>(e2c_header.words_offset);
  }

 private:
  template <typename Work>
  int run_client(int c2e_fd, int e2c_fd, int mapped_fd, const Work& work) const {
    using shm::Access;
    Result<shm::MappedSegment> mine =
        shm::MappedSegment::map(c2e_fd, c2e_header.total_bytes, Access::kReadWrite);
    Result<shm::MappedSegment> theirs =
        shm::MappedSegment::map(e2c_fd, e2c_header.total_bytes, Access::kRead);
    if (!mine.ok() || !theirs.ok()) return 101;
    ClientEnd end;
    end.c2e = std::move(*mine);
    end.e2c = std::move(*theirs);
    end.words = end.c2e.at<shm::ClientWords>(c2e_header.words_offset);
    end.engine = end.e2c.at<const shm::EngineWords>(e2c_header.words_offset);
    const char byte = 1;
    if (write(mapped_fd, &byte, 1) != 1) return 102;
    return work(end);
  }
};

// A wait that lets others run: the two sides may have to share a core. `hung()` says that nothing
// has happened for two minutes; it only catches hangs.
class Patience {
 public:
  void moved() { turns_ = 0; }
  void wait() {
    if (turns_++ == 0) since_ = std::chrono::steady_clock::now();
    __builtin_ia32_pause();
    if (turns_ % 64 == 0) sched_yield();
  }
  bool hung() const {
    return turns_ != 0 && turns_ % 4096 == 0 &&
           std::chrono::steady_clock::now() - since_ > std::chrono::minutes(2);
  }

 private:
  uint64_t turns_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// The next of a sequence of random numbers that is quick and holds no fence.
inline uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

}  // namespace wherry::test
