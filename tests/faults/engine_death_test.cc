// The engine killed behind each step of a request's way: what the clients are then told is true.
//
// Four clients (mover.h) compare what they are told with what they find. That they find mistakes is
// shown by engines that do the steps in a wrong order.
#include <algorithm>
#include <deque>
#include <iostream>
#include <random>

#include "tests/faults/fault_plan.h"
#include "tests/faults/mover.h"
#include "tests/support/counts.h"
#include "tests/support/engine_process.h"

namespace wherry::test {
namespace {

using engine::FaultPoint;

constexpr uint32_t kClients = 4;
constexpr uint64_t kReattachMs = 20'000;  // ten times what it should take

const char* const kOnePoller = R"("pollers": [{"idle": "sleep"}])";
const char* const kTwoPollers = R"("pollers": [{"idle": "sleep"}, {"idle": "sleep"}])";
const char* const kPointNames[] = {"nothing", "queued",    "marked",    "posted",  "copied",
                                   "drained", "delivered", "published", "cleared", "told"};

class EngineDeath : public ClientRestart {
 protected:
  EngineDeath() {
    std::cout << "seed " << seed_ << "\n";
    for (uint32_t i = 0; i < kClients; ++i) {
      // 192 KiB a block: three pieces.
      movers_.emplace_back(attach("mover" + std::to_string(i), &states_[i]), geometry(1, 1536));
    }
  }

  // One life: the poller stands still behind the `passes`th pass of that point, and dies there.
  Tally kill_at(FaultPoint point, uint32_t passes) {
    plan_->passes = passes;
    plan_->stop_at = static_cast<uint32_t>(point);
    const Tally tally = round([&] {
      wait_until([&] { return plan_->stands.load() != 0; });
      rest_ = true;
      for (Mover& mover : movers_) wait_until([&] { return mover.submitted(); });
      engine_.end(SIGKILL);
    });
    next_engine(kOnePoller);
    return tally;
  }

  // One life, with the engine killed at any moment, each step of it being a long one. Every other
  // engine has two pollers, which pass messages to each other.
  Tally kill_at_random() {
    plan_->stretch_ns = 50'000;
    rest_ = true;
    const Tally tally = round([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random(20'000)));
      engine_.end(SIGKILL);
    });
    next_engine(number_ % 2 == 0 ? kOnePoller : kTwoPollers);
    return tally;
  }

  // A round in which nothing happens.
  Tally round_in_peace() {
    rest_ = true;
    return round([] {});
  }

  std::vector<std::string> violations() {
    std::vector<std::string> texts;
    for (Mover& mover : movers_) {
      texts.insert(texts.end(), mover.violations().begin(), mover.violations().end());
    }
    return texts;
  }
  void expect_no_violations() {
    for (const std::string& text : violations()) ADD_FAILURE() << text;
  }
  void report_reattaching() {
    const uint64_t ms = longest_reattach_ns_ / 1'000'000;
    std::cout << "all clients were back at most " << ms << " ms after the engine was started\n";
    RecordProperty("longest_reattach_ms", std::to_string(ms));
    EXPECT_LT(ms, kReattachMs);
  }
  uint32_t random(uint32_t below) { return random_() % below; }

  FaultPlanFile plan_{directory_ / "plan"};

 private:
  static void wait_until(const std::function<bool()>& done) {
    const uint64_t give_up = deadline_in_ms(kWaitMs);
    while (!done() && monotonic_ns() < give_up) std::this_thread::yield();
    EXPECT_TRUE(done()) << "nothing happened";
  }

  // All clients work; `meanwhile` runs beside them.
  Tally round(const std::function<void()>& meanwhile) {
    number_ = number_ % 100 + 1;
    for (uint32_t i = 0; i < kClients; ++i) {
      const std::string neighbour = "mover" + std::to_string((i + 1) % kClients);
      movers_[i].begin(number_, *movers_[i].client().find_client(neighbour, 0));
    }
    std::vector<std::thread> threads;
    for (Mover& mover : movers_) threads.emplace_back([&] { mover.work(rest_); });
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    rest_ = false;
    Tally sum;
    for (uint32_t i = 0; i < kClients; ++i) {
      movers_[i].check_messages(movers_[(i + 1) % kClients]);
      sum.add(movers_[i].tally());
    }
    return sum;
  }

  void next_engine(const char* pollers) {
    plan_->stop_at = static_cast<uint32_t>(FaultPoint::kNowhere);
    plan_->stands = 0;
    plan_->stretch_ns = 0;
    const uint64_t begin = monotonic_ns();
    engine_.start(pollers);
    ++lives_;
    for (States& states : states_) EXPECT_TRUE(states.wait_for(EngineLife::kRunning, lives_));
    longest_reattach_ns_ = std::max(longest_reattach_ns_, monotonic_ns() - begin);
    for (Mover& mover : movers_) mover.check_memory();
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  EngineProcess engine_{run_dir_, "wherryd_with_fault_points"};
  States states_[kClients];
  std::deque<Mover> movers_;
  std::atomic<bool> rest_{false};
  uint32_t number_ = 0;  // of the round
  uint32_t lives_ = 1;
  uint64_t longest_reattach_ns_ = 0;
};

TEST_F(EngineDeath, BehindEachStepEveryRequestIsToldTheTruth) {
  for (uint32_t i = 0; i < counted(20); ++i) {
    for (auto step = uint32_t(FaultPoint::kQueued); step <= uint32_t(FaultPoint::kTold); ++step) {
      const auto point = static_cast<FaultPoint>(step);
      const uint32_t passes = i == 0 ? 1 : 1 + random(kClients * kMessages);
      SCOPED_TRACE(std::string("pass ") + std::to_string(passes) + " of " + kPointNames[step]);
      const Tally tally = kill_at(point, passes);
      EXPECT_GE(tally.not_started, kClients * (kBlocks - kEarly)) << "these were never read";
      if (point >= FaultPoint::kMarked && point <= FaultPoint::kDelivered) {
        EXPECT_GE(tally.gone, 1u);
      }
      if (point == FaultPoint::kPublished || point == FaultPoint::kCleared) {
        EXPECT_GE(tally.ok, passes) << "a completion is worth more than a word in the table";
      }
    }
  }
  EXPECT_EQ(round_in_peace().ok, kClients * (kBlocks + kMessages));
  expect_no_violations();
  report_reattaching();
}

TEST_F(EngineDeath, AtAnyMomentEveryRequestIsToldTheTruth) {
  Tally sum;
  for (uint32_t i = 0; i < counted(200); ++i) sum.add(kill_at_random());
  std::cout << sum.ok << " OK, " << sum.not_started << " NOT_STARTED, " << sum.gone
            << " ENGINE_GONE\n";
  EXPECT_TRUE(sum.ok > 0 && sum.not_started > 0 && sum.gone > 0) << "killed too soon or too late";
  EXPECT_EQ(round_in_peace().ok, kClients * (kBlocks + kMessages));
  expect_no_violations();
  report_reattaching();
}

TEST_F(EngineDeath, AWordClearedBeforeTheCompletionIsPublishedIsFoundOut) {
  plan_->order = static_cast<uint32_t>(Order::kClearedBeforePublished);
  kill_at(FaultPoint::kDrained, 1 + random(kClients * kMessages));
  EXPECT_FALSE(violations().empty());
}

TEST_F(EngineDeath, AWordStoredAfterTheCopyHasBegunIsFoundOut) {
  plan_->order = static_cast<uint32_t>(Order::kMarkedAfterCopied);
  kill_at(FaultPoint::kCopied, 1);
  EXPECT_FALSE(violations().empty());
}

TEST_F(EngineDeath, AWordStoredAfterTheMessageWasDeliveredIsFoundOut) {
  plan_->order = static_cast<uint32_t>(Order::kMarkedAfterCopied);
  kill_at(FaultPoint::kDelivered, 1);
  EXPECT_FALSE(violations().empty());
}

}  // namespace
}  // namespace wherry::test
