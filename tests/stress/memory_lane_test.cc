// The memory transport's lane alone, with and without copy threads: every run ends exactly once,
// with its bytes where they belong and nothing beside them. What it would catch: a job whose slot
// is reused too early, a result before its bytes are there (the thread sanitizer sees that too),
// an aborted run that is copied all the same.
#include "engine/transport/memory/memory_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <vector>

#include "engine/transport/memory/memory_transport.h"
#include "tests/support/counts.h"
#include "tests/support/pattern.h"

namespace wherry::test {
namespace {

using engine::Lane;
using engine::Mapping;
using engine::MemoryTransport;
using LaneRun = engine::Run;  // a test has a Run of its own
using engine::RunResult;

constexpr uint64_t kPieceBytes = 65536;
constexpr uint64_t kSlotBytes = 20'000;  // of one run at most, and a guard behind it
constexpr uint64_t kGuardBytes = 64;
constexpr uint32_t kSlots = 96;

struct Memory {
  Memory() : bytes(kSlots * kSlotBytes, kGuard) {
    mapping.base = bytes.data();
    mapping.length = bytes.size();
  }
  std::vector<std::byte> bytes;
  Mapping mapping;
};

class MemoryLanes : public ::testing::TestWithParam<uint32_t> {
 protected:
  MemoryLanes() {
    EXPECT_TRUE(transport_.start().ok());
    lane_ = transport_.make_lane(0);
    for (size_t i = 0; i < source_.bytes.size(); ++i) {
      source_.bytes[i] = static_cast<std::byte>(mix(i));
    }
    for (uint32_t i = 0; i < kSlots; ++i) free_.push_back(i);
  }
  ~MemoryLanes() override { lane_.reset(), transport_.stop(); }

  // A run into a slot of its own, at an odd place, of an odd length, warm or cold.
  LaneRun next_run() {
    std::swap(free_[random_() % free_.size()], free_.back());
    const uint32_t slot = free_.back();
    free_.pop_back();
    LaneRun run;
    run.source = &source_.mapping;
    run.destination = &destination_.mapping;
    run.length = 1 + random_() % std::min<uint64_t>(lane_->max_run_bytes(), 16384);
    run.source_offset = random_() % (source_.bytes.size() - run.length);
    run.destination_offset =
        slot * kSlotBytes + random_() % (kSlotBytes - kGuardBytes - run.length);
    run.request = static_cast<uint32_t>(random_() % 4);
    run.first_pair = slot;
    run.pair_count = 1;
    run.streaming = random_() % 4 != 0;
    return run;
  }

  // What lies in the slot of a run that ended so.
  void expect_slot(const LaneRun& run, bool copied) {
    const uint64_t begin = run.first_pair * kSlotBytes;
    for (uint64_t at = begin; at < begin + kSlotBytes; ++at) {
      const bool inside =
          at >= run.destination_offset && at - run.destination_offset < run.length && copied;
      const std::byte wanted =
          inside ? source_.bytes[run.source_offset + (at - run.destination_offset)] : kGuard;
      ASSERT_EQ(destination_.bytes[at], wanted) << "slot " << run.first_pair << " at " << at;
      destination_.bytes[at] = kGuard;
    }
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  MemoryTransport transport_{{kPieceBytes, GetParam(), 1}};
  std::unique_ptr<Lane> lane_;
  Memory source_;
  Memory destination_;
  std::vector<uint32_t> free_;
};
INSTANTIATE_TEST_SUITE_P(CopyThreads, MemoryLanes, ::testing::Values(0, 1, 3));

TEST_P(MemoryLanes, EachRunEndsOnceWithItsBytesAndNoOthers) {
  std::cout << "seed " << seed_ << "\n";
  std::vector<LaneRun> runs(kSlots);
  std::vector<bool> under_way(kSlots, false);
  std::vector<bool> may_be_dropped(kSlots, false);
  uint64_t dropped = 0;
  const uint64_t wanted = counted(200'000);
  uint64_t posted = 0;
  for (uint64_t ended = 0; ended < wanted;) {
    while (posted < wanted && lane_->room() != 0 && !free_.empty() && random_() % 16 != 0) {
      const LaneRun run = next_run();
      runs[run.first_pair] = run;
      under_way[run.first_pair] = true;
      may_be_dropped[run.first_pair] = false;
      lane_->post(&run, 1);
      ++posted;
    }
    if (random_() % 32 == 0) {
      const auto request = static_cast<uint32_t>(random_() % 4);
      lane_->abort(request);
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        if (runs[slot].request == request) may_be_dropped[slot] = true;
      }
    }
    RunResult results[32];
    const uint32_t count = lane_->poll(results, 1 + static_cast<uint32_t>(random_() % 32));
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t slot = results[i].first_pair;
      ASSERT_LT(slot, kSlots);
      ASSERT_TRUE(under_way[slot]) << "slot " << slot << " ended twice";
      under_way[slot] = false;
      EXPECT_EQ(results[i].request, runs[slot].request);
      EXPECT_EQ(results[i].bytes, runs[slot].length);
      const bool copied = results[i].code == Code::kOk;
      EXPECT_TRUE(copied || (results[i].code == Code::kCancelled && may_be_dropped[slot]));
      dropped += copied ? 0 : 1;
      ASSERT_NO_FATAL_FAILURE(expect_slot(runs[slot], copied));
      free_.push_back(slot);
      ++ended;
    }
    ASSERT_EQ(lane_->busy(),
              std::find(under_way.begin(), under_way.end(), true) != under_way.end());
  }
  EXPECT_EQ(free_.size(), kSlots);
  EXPECT_GT(dropped, 0u);
}

TEST_P(MemoryLanes, ALaneThatRestsBetweenRunsFindsItsThreadsAgain) {
  // Each run is waited for; a thread has gone to sleep before some of them.
  for (uint64_t i = 0; i < counted(2000); ++i) {
    std::vector<LaneRun> runs;
    for (int k = 0; k < 8; ++k) runs.push_back(next_run());
    lane_->post(runs.data(), static_cast<uint32_t>(runs.size()));
    RunResult results[32];
    for (size_t ended = 0; ended < runs.size();) {
      const uint32_t count = lane_->poll(results, 32);
      for (uint32_t k = 0; k < count; ++k) free_.push_back(results[k].first_pair);
      ended += count;
    }
    for (const LaneRun& run : runs) ASSERT_NO_FATAL_FAILURE(expect_slot(run, true));
    for (uint64_t rest = random_() % 40'000; rest != 0; --rest) asm volatile("");
  }
}

}  // namespace
}  // namespace wherry::test
