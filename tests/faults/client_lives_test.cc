// Clients that stop, fork, and become another program while their transfers are under way.
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdio>
#include <iostream>
#include <optional>

#include "tests/support/counts.h"
#include "tests/support/engine_holdings.h"
#include "tests/support/engine_process.h"
#include "tests/support/traffic.h"

namespace wherry::test {
namespace {

constexpr uint32_t kWindow = 16;
constexpr uint64_t kBytes = uint64_t{1} << 20;

// Told by a child to its parent.
struct Progress {
  std::atomic<uint64_t> copies;
  std::atomic<uint64_t> failures;
};

class SharedProgress {
 public:
  SharedProgress()
      : progress_(static_cast<Progress*>(mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedProgress() { munmap(progress_, sizeof(Progress)); }
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  Progress* operator->() const { return progress_; }

 private:
  Progress* progress_;
};

Client attach_to(const std::string& run_dir, const std::string& instance) {
  AttachOptions options;
  options.instance = instance;
  options.run_dir = run_dir;
  options.wait_ms = kWaitMs;
  Result<Client> client = Client::attach(options);
  EXPECT_TRUE(client.ok()) << client.status().to_string();
  return *client;
}

class ClientLives : public ClientRestart {
 protected:
  static void wait_until(const std::function<bool()>& done) {
    const uint64_t give_up = deadline_in_ms(kWaitMs);
    while (!done() && monotonic_ns() < give_up) std::this_thread::yield();
    EXPECT_TRUE(done()) << "nothing happened";
  }
  bool stalled(const std::string& instance) const {
    return (flags_of(run_dir_, instance) & shm::kClientStalled) != 0;
  }
};

TEST_F(ClientLives, AStoppedClientIsFlaggedTheOthersGoOnAndSoDoesItWhenContinued) {
  EngineProcess engine(run_dir_);
  SharedProgress progress;
  const pid_t child = forked();
  if (child == 0) {
    Traffic traffic(attach_to(run_dir_, "stopped"), kWindow, kBytes);
    for (;;) {
      if (!traffic.next().ok()) ++progress->failures;
      progress->copies = traffic.ended();
    }
  }
  Traffic other(attach_to(run_dir_, "other"), kWindow, kBytes);
  wait_until([&] { return progress->copies.load() >= 100; });
  EXPECT_FALSE(stalled("stopped"));
  kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  const uint64_t copies = progress->copies.load();

  const uint64_t long_enough = deadline_in_ms(counted(10'000));
  const uint64_t give_up = deadline_in_ms(kWaitMs);
  while (!stalled("stopped") || monotonic_ns() < long_enough) {
    ASSERT_LT(monotonic_ns(), give_up) << "never flagged";
    for (uint32_t i = 0; i < kWindow; ++i) {
      const Status copied = other.next();
      ASSERT_TRUE(copied.ok()) << copied.to_string();
    }
    ASSERT_FALSE(stalled("other"));
  }
  EXPECT_EQ(progress->copies.load(), copies);

  kill(child, SIGCONT);
  wait_until([&] { return progress->copies.load() >= copies + 100 && !stalled("stopped"); });
  EXPECT_EQ(progress->failures.load(), 0u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(other.finish().ok());
}

// What a process may do in a child, and how that ends.
enum class Child : uint32_t { kExits, kRunsItsDestructors, kExecutes, kTriesIt, kSpawned, kCount };

pid_t child_of(Child kind, std::optional<Traffic>& traffic) {
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  if (kind == Child::kSpawned) {
    pid_t child = 0;
    EXPECT_EQ(posix_spawnp(&child, name, nullptr, nullptr, arguments, environ), 0);
    return child;
  }
  std::fflush(nullptr);  // or it would be written twice
  const pid_t child = forked();
  if (child != 0) return child;
  switch (kind) {
    case Child::kRunsItsDestructors:
      std::exit(0);
    case Child::kExecutes:
      execvp(name, arguments);
      _exit(1);
    case Child::kTriesIt: {
      // It may end well, with what had completed before.
      [[maybe_unused]] const Status ended = traffic->finish();
      const bool refused = traffic->client().channel().code() == Code::kAborted &&
                           traffic->client().create_region(4096).code() == Code::kAborted;
      traffic.reset();
      _exit(refused ? 0 : 1);
    }
    default:
      _exit(0);
  }
}

TEST_F(ClientLives, WhateverAForkedChildDoesTheTransfersUnderWayGoOn) {
  EngineProcess engine(run_dir_);
  States states;
  std::optional<Traffic> traffic(std::in_place, attach("parent", &states), kWindow, kBytes);
  // One child with all that it has inherited stays.
  const pid_t stays = forked();
  if (stays == 0) {
    for (;;) pause();
  }
  const auto rounds = static_cast<uint32_t>(counted(200));
  for (uint32_t i = 0; i < rounds * static_cast<uint32_t>(Child::kCount); ++i) {
    const auto kind = static_cast<Child>(i % static_cast<uint32_t>(Child::kCount));
    ASSERT_TRUE(traffic->fill().ok());
    const pid_t child = child_of(kind, traffic);
    for (uint32_t copy = 0; copy < kWindow; ++copy) {
      const Status copied = traffic->next();
      ASSERT_TRUE(copied.ok()) << copied.to_string();
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    // A leak checker may dislike what a child leaves at its exit().
    EXPECT_TRUE(status == 0 || (kind == Child::kRunsItsDestructors && WIFEXITED(status)))
        << "child " << i % static_cast<uint32_t>(Child::kCount);
  }
  EXPECT_EQ(states.last().attached, 1u);
  traffic.reset();
  attach("parent", nullptr);  // the child that stays does not keep the name
  kill(stays, SIGKILL);
  waitpid(stays, nullptr, 0);
}

// The ways in which a client's process can end by itself.
enum class End : uint32_t { kExits, kRunsItsDestructors, kExecutes, kAborts, kCount };

[[noreturn]] void end_as(End end, const std::string& run_dir) {
  static Traffic traffic(attach_to(run_dir, "guest"), kWindow, kBytes);
  if (!traffic.fill().ok()) _exit(1);
  switch (end) {
    case End::kRunsItsDestructors:
      std::exit(0);
    case End::kExecutes:
      execlp("true", "true", nullptr);
      _exit(1);
    case End::kAborts:
      std::abort();
    default:
      _exit(0);
  }
}

TEST(ClientEnds, NothingIsLeftOfAClientThatEndsWithTransfersUnderWay) {
  ForkedEngine engine;
  RawClient admin(engine.socket_path());
  std::optional<Holdings> before;
  const auto rounds = static_cast<uint32_t>(counted(200));
  for (uint32_t i = 0; i < rounds; ++i) {
    for (uint32_t end = 0; end < static_cast<uint32_t>(End::kCount); ++end) {
      SCOPED_TRACE("way " + std::to_string(end));
      std::fflush(nullptr);
      const pid_t child = forked();
      if (child == 0) end_as(static_cast<End>(end), engine.run_dir());
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(status == 0 || (static_cast<End>(end) == End::kAborts && WIFSIGNALED(status)));
      wait_until_gone(engine, admin, "guest");
      if (before.has_value()) expect_nothing_left(engine, *before);
    }
    if (!before.has_value()) before = holdings_of(engine);
  }
}

}  // namespace
}  // namespace wherry::test
