// A poller at work allocates nothing and makes no system call: counted, not assumed.
//
// In a program of its own, because it counts through its own malloc and the kernel's syscall user
// dispatch. Would catch: a vector that grows, a std::function, a log line, a futex or eventfd write
// on the hot path while the client is awake.
#include <cstdlib>
#include <thread>

#include "tests/support/counts.h"
#include "tests/support/poller_world.h"
#include "tests/support/quiet_scope.h"

namespace wherry::test {
namespace {

class QuietPoller : public PollerWorld {
 protected:
  static uint32_t request_count() { return static_cast<uint32_t>(counted(100'000)); }
};

TEST_F(QuietPoller, RequestsWithBothSidesAwakeCostThePollerNoHeapCallAndNoSystemCall) {
  std::string reason;
  if (!QuietScope::supported(&reason)) GTEST_SKIP() << reason;
  auto session = new_session();
  auto other = new_session();
  engine::SessionShared* self = session.get();
  const LayoutKind kinds[] = {LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
                              LayoutKind::kLayerSeparateBlockSecond, LayoutKind::kDescriptorList};
  std::vector<uint64_t> layouts;
  for (LayoutKind kind : kinds)
    layouts.push_back(layout_in_new_memory(self, small_geometry(kind, 32)));
  const uint64_t bytes = region(self, memory(4096));
  RawChannel* raw = channel(self, {256, 0});
  RawChannel* receiver = channel(other.get(), {64, 256});
  const uint64_t target = client_handle(self, other);

  std::atomic<bool> stop{false};
  QuietScope scope;
  std::thread poller([&] {
    scope.begin();
    while (!stop.load(std::memory_order_acquire)) pollers[0]->poll_once();
    scope.end();
  });
  uint32_t ok = 0;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < request_count(); ++i) {
    // Every kind of work: all pairs of layouts, long and short lists, ranges, notifications,
    // deadlines, refusals, cancels.
    const uint64_t source = layouts[i % 4];
    const uint64_t destination = layouts[(i / 4 + 1) % 4];
    shm::SubmitHead head{};
    uint64_t id = 0;
    if (i % 7 == 3) {
      id = raw->range(bytes, destination, {i % 100, i % 50, 64});
    } else if (i % 7 == 5) {
      id = raw->notify(target, "hello");
    } else {
      std::vector<shm::BlockPair> pairs;
      for (uint32_t b = 0; b < 1 + i % 20; ++b)
        pairs.push_back({(b * 7 + i) % 32, (b * 5 + i) % 32});
      if (i % 11 == 0) head.deadline_ns = 1;  // long past
      if (i % 13 == 0) pairs.push_back({1000, 1000});
      id = raw->transfer(source, destination, pairs, head);
    }
    if (i % 17 == 0) raw->cancel(id);
    while (!raw->completions.ready()) __builtin_ia32_pause();
    const auto done = raw->reap();
    done->code() == Code::kOk ? ++ok : ++refused;
    while (receiver->read_notification().has_value()) {
    }
  }
  stop.store(true, std::memory_order_release);
  poller.join();
  EXPECT_GT(ok, request_count() / 2);
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(scope.heap_calls(), 0u);
  EXPECT_EQ(scope.system_calls(), 0u) << "the first was number " << scope.first_system_call();
}

TEST_F(QuietPoller, TheCountersSeeAHeapCallAndASystemCall) {
  std::string reason;
  if (!QuietScope::supported(&reason)) GTEST_SKIP() << reason;
  QuietScope scope;
  scope.begin();
  void* volatile memory = std::malloc(100);
  std::free(memory);
  std::this_thread::yield();
  scope.end();
  EXPECT_EQ(scope.heap_calls(), 2u);
  EXPECT_EQ(scope.system_calls(), 1u);
}

}  // namespace
}  // namespace wherry::test
