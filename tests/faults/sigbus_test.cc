// SIGBUS: a guarded range is replaced and the toucher goes on; anywhere else the process dies.
#include "engine/control/sigbus.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "shm/file_descriptor.h"

namespace wherry::engine {
namespace {

constexpr uint64_t kPage = 4096;

// Memory whose pages can be taken away: a file that may shrink.
struct Shrinkable {
  explicit Shrinkable(uint64_t bytes)
      : length(bytes), fd(memfd_create("sigbus-test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    base = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    EXPECT_NE(base, MAP_FAILED);
  }
  ~Shrinkable() { munmap(base, length); }
  void take_pages() { EXPECT_EQ(ftruncate(fd.get(), 0), 0); }

  uint64_t length;
  shm::UniqueFd fd;
  std::byte* base = nullptr;
  std::atomic<bool> broken{false};
};

// A read that the compiler cannot leave out.
std::byte touch(const std::byte* at) { return *static_cast<const volatile std::byte*>(at); }

class Sigbus : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(install_sigbus_handler().ok()); }
};

TEST_F(Sigbus, ATouchOfLostPagesMarksTheRangeAndGoesOn) {
  Shrinkable memory(8 * kPage);
  ASSERT_TRUE(guard_range(memory.base, memory.length, &memory.broken).ok());
  memory.base[5 * kPage] = std::byte{1};
  EXPECT_FALSE(memory.broken);
  memory.take_pages();
  EXPECT_EQ(touch(memory.base + 5 * kPage), std::byte{0});
  EXPECT_TRUE(memory.broken);
  // All of it is anonymous memory now.
  memory.base[0] = std::byte{7};
  memory.base[7 * kPage] = std::byte{9};
  EXPECT_EQ(memory.base[0], std::byte{7});
  unguard_range(memory.base);
}

TEST_F(Sigbus, ANeighbourIsNotTouched) {
  Shrinkable left(kPage);
  Shrinkable right(kPage);
  ASSERT_TRUE(guard_range(left.base, left.length, &left.broken).ok());
  ASSERT_TRUE(guard_range(right.base, right.length, &right.broken).ok());
  right.base[0] = std::byte{42};
  left.take_pages();
  EXPECT_EQ(touch(left.base), std::byte{0});
  EXPECT_TRUE(left.broken);
  EXPECT_FALSE(right.broken);
  EXPECT_EQ(right.base[0], std::byte{42});
  unguard_range(left.base);
  unguard_range(right.base);
}

TEST_F(Sigbus, ThreadsThatTouchTogetherAllGoOn) {
  for (int round = 0; round < 20; ++round) {
    Shrinkable memory(64 * kPage);
    ASSERT_TRUE(guard_range(memory.base, memory.length, &memory.broken).ok());
    memory.take_pages();
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; ++i) {
      threads.emplace_back([&memory, i] {
        for (uint64_t page = i; page < 64; page += 4) {
          *const_cast<volatile std::byte*>(memory.base + page * kPage) = std::byte{1};
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(memory.broken);
    unguard_range(memory.base);
  }
}

TEST_F(Sigbus, SlotsOfRangesNoLongerGuardedAreUsedAgain) {
  Shrinkable memory(kPage);
  for (uint32_t i = 0; i < 2 * kMaxGuarded; ++i) {
    ASSERT_TRUE(guard_range(memory.base, memory.length, &memory.broken).ok()) << i;
    unguard_range(memory.base);
  }
}

using SigbusDeathTest = Sigbus;

TEST_F(SigbusDeathTest, ATouchOutsideAnyGuardedRangeEndsTheProcess) {
  EXPECT_EXIT(
      {
        Shrinkable memory(kPage);
        guard_range(memory.base, memory.length, &memory.broken).ok();
        unguard_range(memory.base);
        memory.take_pages();
        [[maybe_unused]] const std::byte read = touch(memory.base);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(SigbusDeathTest, ASignalSentFromOutsideEndsTheProcess) {
  EXPECT_EXIT(raise(SIGBUS), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace wherry::engine
