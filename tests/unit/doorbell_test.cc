#include "shm/doorbell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "shm/segment.h"

namespace wherry::shm {
namespace {

constexpr int64_t kLong = 120'000'000'000;  // catches a hang

TEST(WantsWake, NobodyWhoIsAwakeWantsOne) {
  for (const uint32_t wake : {0u, 1u, 7u, UINT32_MAX}) EXPECT_FALSE(wants_wake(kAwake, wake));
}

TEST(WantsWake, EachSleepIsWokenOnce) {
  for (const uint32_t how :
       {kSleepsOnFutex, kSleepsOnDescriptor, kSleepsOnFutex | kSleepsOnDescriptor}) {
    const uint32_t sleeping = sleeping_word(41, how);
    EXPECT_EQ(sleeping & 3, how);
    EXPECT_TRUE(wants_wake(sleeping, 41));
    EXPECT_FALSE(wants_wake(sleeping, 42));  // woken: the client has not written its word yet
    EXPECT_FALSE(wants_wake(sleeping, 40));
    EXPECT_TRUE(wants_wake(sleeping_word(42, how), 42));
  }
}

TEST(WantsWake, TheCountWrapsAroundWithoutALostOrARepeatedWake) {
  const uint32_t borders[] = {0,          0x3fffffff, 0x40000000, 0x7fffffff,
                              0x80000000, 0xbfffffff, 0xc0000000, 0xffffffff};
  for (const uint32_t border : borders) {
    for (uint32_t wake = border - 3; wake != border + 4; ++wake) {
      const uint32_t sleeping = sleeping_word(wake, kSleepsOnFutex);
      EXPECT_EQ(sleeping & 3, kSleepsOnFutex) << wake;
      EXPECT_TRUE(wants_wake(sleeping, wake)) << wake;
      EXPECT_FALSE(wants_wake(sleeping, wake + 1)) << wake;
      EXPECT_FALSE(wants_wake(sleeping, wake - 1)) << wake;
    }
  }
}

class Futex : public testing::Test {
 protected:
  void SetUp() override {
    Result<E2cSegment> made = create_e2c(make_header(SegmentKind::kE2c, {8, 0}));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    segment_ = std::move(*made);
    const uint64_t offset = make_header(SegmentKind::kE2c, {8, 0}).words_offset;
    engine_ = segment_.mapping.at<EngineWords>(offset);
    Result<MappedSegment> mapped =
        MappedSegment::map(segment_.fd.get(), segment_.mapping.size(), Access::kRead);
    ASSERT_TRUE(mapped.ok()) << mapped.status().to_string();
    client_mapping_ = std::move(*mapped);
    client_ = client_mapping_.at<const EngineWords>(offset);
  }

  // Whether a wait came back before its timeout.
  static bool comes_back(const std::atomic<uint32_t>& word, uint32_t expected) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
    futex_wait(word, expected, kLong);
    return std::chrono::steady_clock::now() < end;
  }

  E2cSegment segment_;
  MappedSegment client_mapping_;
  EngineWords* engine_ = nullptr;
  const EngineWords* client_ = nullptr;
};

TEST_F(Futex, AWaitForAValueThatHasPassedComesBackAtOnce) {
  engine_->wake.store(5);
  EXPECT_TRUE(comes_back(client_->wake, 4));
}

TEST_F(Futex, AWaitEndsWithItsTimeout) {
  const auto begin = std::chrono::steady_clock::now();
  futex_wait(client_->wake, 0, 2'000'000);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2));
}

// 'S' once the process sleeps.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? '?' : text[end + 2];
}

TEST_F(Futex, WakesAnotherProcessThatMayOnlyReadTheWord) {
  const pid_t child = fork();
  if (child == 0) _exit(comes_back(client_->wake, 0) && client_->wake.load() == 1 ? 0 : 1);
  ASSERT_GT(child, 0);
  while (state_of(child) != 'S') usleep(100);
  engine_->wake.store(1, std::memory_order_release);
  futex_wake(engine_->wake);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Futex, AWakeWithNobodyWaitingDoesNothing) {
  futex_wake(engine_->wake);
  futex_wake(client_->wake);
  EXPECT_EQ(engine_->wake.load(), 0u);
}

TEST(Eventfd, IsNonBlockingAndClosedOnExec) {
  const Result<UniqueFd> fd = create_eventfd();
  ASSERT_TRUE(fd.ok()) << fd.status().to_string();
  EXPECT_NE(fcntl(fd->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  uint64_t value = 0;
  EXPECT_EQ(read(fd->get(), &value, sizeof(value)), -1);  // its value is 0
}

TEST(Eventfd, EachRingIsAnEventOfItsOwnForAPollerThatNeverReads) {
  const Result<UniqueFd> fd = create_eventfd();
  ASSERT_TRUE(fd.ok());
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{EPOLLIN | EPOLLET, {.u64 = 7}};
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd->get(), &event), 0);
  const auto events = [&](int timeout) {
    epoll_event out{};
    return epoll_wait(epoll.get(), &out, 1, timeout);
  };
  EXPECT_EQ(events(0), 0);
  for (int i = 0; i < 5; ++i) {
    ring_eventfd(fd->get());
    EXPECT_EQ(events(-1), 1);
    EXPECT_EQ(events(0), 0);
  }
}

TEST(Eventfd, AFullOneDoesNotBlockWhoRingsIt) {
  const Result<UniqueFd> fd = create_eventfd();
  ASSERT_TRUE(fd.ok());
  const uint64_t most = UINT64_MAX - 1;
  ASSERT_EQ(write(fd->get(), &most, sizeof(most)), static_cast<ssize_t>(sizeof(most)));
  ring_eventfd(fd->get());
  ring_eventfd(-1);
}

}  // namespace
}  // namespace wherry::shm
