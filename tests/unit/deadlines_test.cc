#include "engine/poller/deadlines.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace wherry::engine {
namespace {

Request* due(Request& request, uint64_t deadline_ns) {
  request.deadline_ns = deadline_ns;
  return &request;
}

TEST(DeadlinesHeap, TheSoonestIsFirst) {
  Deadlines deadlines;
  Request requests[5];
  EXPECT_TRUE(deadlines.empty());
  const uint64_t times[] = {50, 10, 40, 20, 30};
  for (int i = 0; i < 5; ++i) deadlines.push(due(requests[i], times[i]));
  EXPECT_EQ(deadlines.size(), 5u);
  for (const uint64_t time : {10, 20, 30, 40, 50}) {
    Request* first = deadlines.first();
    EXPECT_EQ(first->deadline_ns, time);
    deadlines.remove(first);
  }
  EXPECT_TRUE(deadlines.empty());
}

TEST(DeadlinesHeap, OneThatIsNotInCanBeRemovedWithoutHarm) {
  Deadlines deadlines;
  Request in;
  Request out;
  Request never;
  deadlines.push(due(in, 5));
  deadlines.push(due(out, 6));
  deadlines.remove(&out);
  EXPECT_EQ(out.heap_index, kNone);
  deadlines.remove(&out);
  deadlines.remove(&never);
  EXPECT_EQ(deadlines.size(), 1u);
  EXPECT_EQ(deadlines.first(), &in);
  deadlines.push(&out);
  EXPECT_EQ(deadlines.size(), 2u);
}

TEST(DeadlinesHeap, EqualTimesAndTheEdgesOfTimeKeepTheirOrder) {
  Deadlines deadlines;
  Request requests[6];
  const uint64_t times[] = {UINT64_MAX, 7, 0, 7, UINT64_MAX, 7};
  for (int i = 0; i < 6; ++i) deadlines.push(due(requests[i], times[i]));
  for (const uint64_t time :
       {uint64_t{0}, uint64_t{7}, uint64_t{7}, uint64_t{7}, UINT64_MAX, UINT64_MAX}) {
    EXPECT_EQ(deadlines.first()->deadline_ns, time);
    deadlines.remove(deadlines.first());
  }
}

TEST(DeadlinesHeap, AgreesWithASortedSetOverRandomPushesAndRemovals) {
  for (const uint64_t range : {uint64_t{3}, uint64_t{100}, UINT64_MAX}) {
    std::mt19937_64 random(range);
    constexpr size_t kRequests = 200;
    std::vector<Request> requests(kRequests);
    std::multiset<uint64_t> sorted;
    std::vector<bool> in(kRequests, false);
    Deadlines deadlines;
    deadlines.reserve(kRequests);
    for (int step = 0; step < 100'000; ++step) {
      // Tides, so that the heap is full and empty at times.
      const bool filling = step / 1000 % 2 == 0;
      const bool push = random() % 10 < (filling ? 7 : 3);
      const size_t i = random() % kRequests;
      if (push && !in[i]) {
        deadlines.push(due(requests[i], random() % range));
        sorted.insert(requests[i].deadline_ns);
        in[i] = true;
      } else if (!push && random() % 4 == 0 && !deadlines.empty()) {
        Request* first = deadlines.first();
        sorted.erase(sorted.begin());
        in[static_cast<size_t>(first - requests.data())] = false;
        deadlines.remove(first);
      } else if (!push) {
        if (in[i]) sorted.erase(sorted.find(requests[i].deadline_ns));
        deadlines.remove(&requests[i]);
        in[i] = false;
      }
      ASSERT_EQ(deadlines.size(), sorted.size());
      ASSERT_EQ(deadlines.empty(), sorted.empty());
      if (!sorted.empty()) {
        ASSERT_EQ(deadlines.first()->deadline_ns, *sorted.begin()) << step;
      }
      ASSERT_EQ(requests[i].heap_index != kNone, in[i]);
    }
  }
}

}  // namespace
}  // namespace wherry::engine
