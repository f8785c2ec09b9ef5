#include "engine/poller/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace wherry::engine {
namespace {

constexpr uint64_t kQuantum = 64 * 1024;
constexpr uint64_t kMiB = 1 << 20;

// Requests of so many bytes in runs of so many, and somebody who moves what the scheduler allows,
// as a poller does.
class Scheduling : public testing::Test {
 protected:
  struct Job {
    Request request;
    Flow* flow = nullptr;
    uint64_t left = 0;
    uint64_t run = 0;
  };

  Job* push(Flow* flow, uint64_t bytes, uint64_t run, uint8_t priority = 0) {
    auto job = std::make_unique<Job>();
    job->request.priority = priority;
    job->flow = flow;
    job->left = bytes;
    job->run = run;
    scheduler_.push(flow, &job->request);
    jobs_[&job->request] = job.get();
    owned_.push_back(std::move(job));
    return owned_.back().get();
  }

  // One go. False when nothing is queued.
  bool serve() {
    const Scheduler::Turn turn = scheduler_.next();
    if (turn.flow == nullptr) return false;
    Job* job = jobs_.at(turn.request);
    EXPECT_EQ(job->flow, turn.flow);
    EXPECT_EQ(job->request.priority, turn.priority);
    EXPECT_GT(turn.bytes, 0);
    int64_t left = turn.bytes;
    while (left > 0 && job->left != 0) {
      const uint64_t bytes = std::min(job->run, job->left);
      scheduler_.charge(turn, bytes);
      job->left -= bytes;
      left -= static_cast<int64_t>(bytes);
      moved_[turn.flow][turn.priority] += bytes;
      total_ += bytes;
    }
    scheduler_.done(turn, job->left == 0);
    if (job->left == 0) finished_.push_back(job);
    return true;
  }
  void serve_bytes(uint64_t bytes) {
    const uint64_t end = total_ + bytes;
    while (total_ < end) ASSERT_TRUE(serve());
  }
  uint64_t moved(Flow* flow) { return moved_[flow][0] + moved_[flow][1]; }
  double share(Flow* flow) {
    return static_cast<double>(moved(flow)) / static_cast<double>(total_);
  }
  void forget_counts() {
    moved_.clear();
    total_ = 0;
  }

  Scheduler scheduler_{kQuantum, 8};
  std::vector<std::unique_ptr<Job>> owned_;
  std::map<Request*, Job*> jobs_;
  std::map<Flow*, std::array<uint64_t, 2>> moved_;
  std::vector<Job*> finished_;
  uint64_t total_ = 0;
};

TEST_F(Scheduling, WithNothingQueuedNobodyGoes) {
  EXPECT_TRUE(scheduler_.empty());
  EXPECT_FALSE(serve());
  Flow* flow = scheduler_.join(1, 1);
  EXPECT_FALSE(serve());
  push(flow, 10, 10);
  EXPECT_FALSE(scheduler_.empty());
  EXPECT_TRUE(serve());
  EXPECT_FALSE(serve());
  EXPECT_TRUE(scheduler_.empty());
}

TEST_F(Scheduling, FlowsShareByBytesWhateverTheSizeOfTheirRunsAndRequests) {
  const uint64_t runs[] = {64, 4096, kQuantum, kQuantum - 1, 3 * kQuantum + 5};
  std::vector<Flow*> flows;
  for (const uint64_t run : runs) {
    Flow* flow = scheduler_.join(flows.size() + 1, 1);
    flows.push_back(flow);
    // The same bytes in few requests or in many.
    const uint64_t pieces = flows.size() % 2 == 0 ? 1 : 1000;
    for (uint64_t i = 0; i < pieces; ++i) push(flow, 400 * kMiB / pieces, run);
  }
  serve_bytes(500 * kMiB);
  for (Flow* flow : flows) EXPECT_NEAR(share(flow), 0.2, 0.002);
}

TEST_F(Scheduling, SharesGoWithTheWeights) {
  std::vector<Flow*> flows;
  const uint32_t weights[] = {1, 2, 5};
  for (const uint32_t weight : weights) {
    flows.push_back(scheduler_.join(flows.size() + 1, weight));
    push(flows.back(), 1000 * kMiB, 10'000);
  }
  serve_bytes(400 * kMiB);
  EXPECT_NEAR(share(flows[0]), 1.0 / 8, 0.002);
  EXPECT_NEAR(share(flows[1]), 2.0 / 8, 0.002);
  EXPECT_NEAR(share(flows[2]), 5.0 / 8, 0.002);
}

TEST_F(Scheduling, AWeightOfZeroCountsAsOne) {
  Flow* zero = scheduler_.join(1, 0);
  Flow* one = scheduler_.join(2, 1);
  push(zero, 100 * kMiB, 4096);
  push(one, 100 * kMiB, 4096);
  serve_bytes(20 * kMiB);
  EXPECT_NEAR(share(zero), 0.5, 0.01);
}

TEST_F(Scheduling, ARunLongerThanAQuantumIsPaidBackBeforeTheNextOne) {
  Flow* large = scheduler_.join(1, 1);
  Flow* small = scheduler_.join(2, 1);
  push(large, 1000 * kMiB, 16 * kQuantum);
  push(small, 1000 * kMiB, 4096);
  // At no time is either ahead by more than the one long run and a quantum.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(serve());
    const auto ahead = static_cast<int64_t>(moved(large)) - static_cast<int64_t>(moved(small));
    ASSERT_LE(std::abs(ahead), static_cast<int64_t>(17 * kQuantum)) << i;
  }
  EXPECT_NEAR(share(large), 0.5, 0.02);
}

TEST_F(Scheduling, AFlowWithOneRequestAtATimePaysForItsLongRunsToo) {
  Flow* single = scheduler_.join(1, 1);
  Flow* steady = scheduler_.join(2, 1);
  push(steady, 1000 * kMiB, 4096);
  push(single, 16 * kQuantum, 16 * kQuantum);
  while (total_ < 400 * kMiB) {
    ASSERT_TRUE(serve());
    if (finished_.empty()) continue;
    finished_.clear();  // its client sends the next one
    push(single, 16 * kQuantum, 16 * kQuantum);
  }
  EXPECT_NEAR(share(single), 0.5, 0.02);
}

TEST_F(Scheduling, NobodySavesUpBytesWhileItHasNothingToMove) {
  Flow* rare = scheduler_.join(1, 1);
  Flow* steady = scheduler_.join(2, 1);
  push(steady, 1000 * kMiB, 4096);
  for (int i = 0; i < 100; ++i) {
    push(rare, 1, 1);
    for (int go = 0; go < 2; ++go) ASSERT_TRUE(serve());
  }
  push(rare, 1000 * kMiB, 4096);
  forget_counts();
  serve_bytes(10 * kMiB);
  EXPECT_NEAR(share(rare), 0.5, 0.01);
}

TEST_F(Scheduling, WhoHadNothingToMoveGoesBeforeTheRound) {
  Flow* const floods[] = {scheduler_.join(1, 1), scheduler_.join(2, 1), scheduler_.join(3, 1)};
  for (Flow* flood : floods) push(flood, 100 * kMiB, kQuantum);
  serve_bytes(10 * kQuantum);
  Flow* const rare = scheduler_.join(4, 1);
  for (int i = 0; i < 20; ++i) {
    Job* const job = push(rare, 4096, 4096);
    ASSERT_TRUE(serve());
    EXPECT_EQ(job->left, 0u) << "it waited for others' large ones";
    serve_bytes(4 * kQuantum);  // a whole round
  }
}

TEST_F(Scheduling, WhoComesBackAtOnceGetsNoMoreThanItsShare) {
  Flow* const flood = scheduler_.join(1, 1);
  Flow* const eager = scheduler_.join(2, 1);
  push(flood, 100 * kMiB, kQuantum);
  Job* job = push(eager, kQuantum, kQuantum);
  while (total_ < 50 * kMiB) {
    ASSERT_TRUE(serve());
    if (job->left == 0) job = push(eager, kQuantum, kQuantum);
  }
  EXPECT_NEAR(share(eager), 0.5, 0.01);
}

TEST_F(Scheduling, LowPriorityGetsATenthWhileBothWait) {
  for (const uint64_t low_run : {uint64_t{4096}, 8 * kQuantum}) {
    for (const uint32_t low_weight : {1u, 4u, 16u}) {
      SCOPED_TRACE(std::to_string(low_run) + " " + std::to_string(low_weight));
      Flow* low = scheduler_.join(1, low_weight);
      Flow* high = scheduler_.join(2, 1);
      Job* waiting = push(low, 2000 * kMiB, low_run, 0);
      Job* urgent = push(high, 2000 * kMiB, 4096, 1);
      forget_counts();
      serve_bytes(500 * kMiB);
      EXPECT_NEAR(share(low), 0.1, 0.012);
      scheduler_.remove(low, &waiting->request);
      scheduler_.remove(high, &urgent->request);
      EXPECT_FALSE(serve());
      scheduler_.leave(low);
      scheduler_.leave(high);
    }
  }
}

TEST_F(Scheduling, TheTenthIsOfOneFlowsTwoPrioritiesToo) {
  Flow* flow = scheduler_.join(1, 1);
  push(flow, 500 * kMiB, 4096, 0);
  push(flow, 500 * kMiB, 4096, 1);
  serve_bytes(300 * kMiB);
  EXPECT_NEAR(static_cast<double>(moved_[flow][0]) / static_cast<double>(total_), 0.1, 0.012);
}

TEST_F(Scheduling, HighGoesFirstAndLowGetsAllThatHighLeaves) {
  Flow* low = scheduler_.join(1, 1);
  Flow* high = scheduler_.join(2, 1);
  push(low, 100 * kMiB, 4096, 0);
  push(high, kQuantum, 4096, 1);
  ASSERT_TRUE(serve());
  EXPECT_EQ(moved(high), kQuantum);
  serve_bytes(50 * kMiB);
  EXPECT_GE(moved(low), 50 * kMiB);
}

TEST_F(Scheduling, WhatLowMovedWhileItWasAloneIsNotHeldAgainstItNorForIt) {
  Flow* low = scheduler_.join(1, 1);
  Flow* high = scheduler_.join(2, 1);
  push(low, 2000 * kMiB, 4096, 0);
  serve_bytes(300 * kMiB);
  for (int i = 0; i < 5; ++i) {
    push(high, 20 * kMiB, 4096, 1);
    forget_counts();
    // The newcomer goes at once, and low still gets its tenth.
    ASSERT_TRUE(serve());
    ASSERT_TRUE(serve());
    EXPECT_GT(moved(high), 0u);
    serve_bytes(20 * kMiB);
    EXPECT_NEAR(share(low), 0.1, 0.03);
    while (moved(high) < 20 * kMiB) ASSERT_TRUE(serve());
    serve_bytes(3 * kMiB);  // alone again
  }
}

TEST_F(Scheduling, RequestsOfOneFlowGoInOrderWithinAPriority) {
  Flow* flow = scheduler_.join(1, 1);
  Flow* other = scheduler_.join(2, 1);
  std::vector<Job*> jobs(50);
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i] = push(flow, 1000 + 5000 * (i % 7), 999);
  push(other, 10 * kMiB, 4096);
  while (serve()) {
  }
  std::vector<Job*> mine;
  for (Job* job : finished_) {
    if (job->flow == flow) mine.push_back(job);
  }
  EXPECT_EQ(mine, jobs);
}

TEST_F(Scheduling, ARequestIsTakenOutWhereverItStands) {
  for (size_t gone = 0; gone < 4; ++gone) {
    Flow* flow = scheduler_.join(1, 1);
    std::vector<Job*> jobs(4);
    for (Job*& job : jobs) job = push(flow, 100, 100);
    scheduler_.remove(flow, &jobs[gone]->request);
    scheduler_.remove(flow, &jobs[gone]->request);  // not there any more: nothing happens
    jobs.push_back(push(flow, 100, 100));           // goes behind all others
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(gone));
    finished_.clear();
    while (serve()) {
    }
    EXPECT_EQ(finished_, jobs) << gone;
    scheduler_.leave(flow);
  }
}

TEST_F(Scheduling, ARequestTakenOutAndPutInAgainIsServedOnce) {
  Flow* flow = scheduler_.join(1, 1);
  Job* job = push(flow, 100, 100);
  scheduler_.remove(flow, &job->request);
  scheduler_.push(flow, &job->request);
  while (serve()) {
  }
  EXPECT_EQ(finished_, std::vector<Job*>{job});
}

TEST_F(Scheduling, AHalfMovedRequestCanBeTakenOut) {
  Flow* flow = scheduler_.join(1, 1);
  Flow* other = scheduler_.join(2, 1);
  Job* job = push(flow, 100 * kMiB, 4096);
  Job* behind = push(flow, 4096, 4096);
  Job* beside = push(other, 4096, 4096);
  ASSERT_TRUE(serve());
  scheduler_.remove(flow, &job->request);
  while (serve()) {
  }
  EXPECT_EQ(finished_, (std::vector<Job*>{beside, behind}));
}

TEST_F(Scheduling, ASessionsChannelsShareOneFlow) {
  Flow* flow = scheduler_.join(7, 3);
  EXPECT_EQ(scheduler_.join(7, 3), flow);
  EXPECT_NE(scheduler_.join(8, 3), flow);
  EXPECT_EQ(flow->channels, 2u);
  scheduler_.leave(flow);
  EXPECT_EQ(scheduler_.join(7, 3), flow);
  scheduler_.leave(flow);
  scheduler_.leave(flow);
  EXPECT_EQ(flow->channels, 0u);
}

TEST_F(Scheduling, TheTableOfFlowsIsBoundedAndPlacesAreUsedAgain) {
  std::vector<Flow*> flows;
  for (uint64_t session = 1; session <= 8; ++session) flows.push_back(scheduler_.join(session, 1));
  EXPECT_EQ(scheduler_.join(9, 1), nullptr);
  EXPECT_EQ(scheduler_.join(3, 1), flows[2]);
  scheduler_.leave(flows[4]);
  EXPECT_EQ(scheduler_.join(9, 2), flows[4]);
  EXPECT_EQ(flows[4]->session, 9u);
  EXPECT_EQ(flows[4]->weight, 2u);
}

TEST_F(Scheduling, ANewcomerInThePlaceOfOneWhoLeftIsInNobodysWay) {
  Flow* first = scheduler_.join(1, 1);
  Flow* leaver = scheduler_.join(2, 1);
  Flow* last = scheduler_.join(3, 1);
  push(first, kMiB, 4096);
  Job* cancelled = push(leaver, kMiB, 4096);
  Job* mine = push(last, kMiB, 4096);
  // It leaves between two goes of the first flow, and its place is taken before its turn would
  // come.
  scheduler_.remove(leaver, &cancelled->request);
  scheduler_.leave(leaver);
  Flow* newcomer = scheduler_.join(4, 1);
  EXPECT_EQ(newcomer, leaver);
  Job* theirs = push(newcomer, kMiB, 4096);
  while (serve()) {
  }
  EXPECT_EQ(finished_.size(), 3u);
  EXPECT_NE(std::find(finished_.begin(), finished_.end(), mine), finished_.end());
  EXPECT_NE(std::find(finished_.begin(), finished_.end(), theirs), finished_.end());
}

// Everything at random, against one queue per flow and priority.
TEST_F(Scheduling, NothingIsLostRepeatedOrOvertakenWhateverHappens) {
  std::mt19937_64 random(5);
  std::map<uint64_t, Flow*> flows;  // by session
  std::map<std::pair<Flow*, uint32_t>, std::deque<Job*>> queues;
  uint64_t next_session = 1;
  uint64_t served = 0;
  const auto queued = [&] {
    size_t count = 0;
    for (const auto& [key, queue] : queues) count += queue.size();
    return count;
  };
  const auto pick_flow = [&] {
    auto it = flows.begin();
    std::advance(it, random() % flows.size());
    return it;
  };
  for (int step = 0; step < 100'000; ++step) {
    const uint64_t what = random() % 100;
    if (what < 5 && flows.size() < 8) {
      Flow* flow = scheduler_.join(next_session, static_cast<uint32_t>(1 + random() % 4));
      ASSERT_NE(flow, nullptr);
      flows[next_session++] = flow;
    } else if (what < 9 && !flows.empty()) {
      const auto it = pick_flow();
      for (uint32_t priority : {0u, 1u}) {
        auto& queue = queues[{it->second, priority}];
        for (Job* job : queue) scheduler_.remove(it->second, &job->request);
        queue.clear();
      }
      scheduler_.leave(it->second);
      flows.erase(it);
    } else if (what < 40 && !flows.empty()) {
      Flow* flow = pick_flow()->second;
      const auto priority = static_cast<uint8_t>(random() % 2);
      const uint64_t run = 1 + random() % (2 * kQuantum);
      queues[{flow, priority}].push_back(push(flow, 1 + random() % (4 * kQuantum), run, priority));
    } else if (what < 50 && !flows.empty()) {
      Flow* flow = pick_flow()->second;
      auto& queue = queues[{flow, static_cast<uint32_t>(random() % 2)}];
      if (queue.empty()) continue;
      const auto at = queue.begin() + static_cast<std::ptrdiff_t>(random() % queue.size());
      scheduler_.remove(flow, &(*at)->request);
      queue.erase(at);
    } else {
      finished_.clear();
      const bool any = queued() != 0;
      ASSERT_EQ(serve(), any) << step;
      for (Job* job : finished_) {
        auto& queue = queues[{job->flow, job->request.priority}];
        ASSERT_FALSE(queue.empty());
        ASSERT_EQ(queue.front(), job) << step;
        queue.pop_front();
        ++served;
      }
    }
  }
  while (serve()) {
  }
  EXPECT_GT(served, 5000u);
}

}  // namespace
}  // namespace wherry::engine
