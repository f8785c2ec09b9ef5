#include "engine/poller/idle.h"

#include <gtest/gtest.h>

namespace wherry::engine {
namespace {

constexpr uint64_t kSpin = 1600;

// Turns without work, one a nanosecond, until it sleeps; returns when that was.
uint64_t spin_until_asleep(IdlePolicy& policy, uint64_t now) {
  while (!policy.should_sleep(now)) ++now;
  return now;
}

TEST(IdleNames, GoBothWays) {
  const char* const names[] = {"busy", "adaptive", "sleep", "external"};
  for (uint8_t i = 0; i < 4; ++i) {
    const auto idle = static_cast<IdleStrategy>(i);
    EXPECT_EQ(idle_strategy_name(idle), names[i]);
    EXPECT_EQ(idle_strategy_from_name(names[i]), idle);
  }
  for (const char* name : {"", "Busy", "adaptive ", "spin"}) {
    EXPECT_FALSE(idle_strategy_from_name(name).has_value()) << name;
  }
}

TEST(Idle, BusyAndExternalNeverSleep) {
  for (const IdleStrategy strategy : {IdleStrategy::kBusy, IdleStrategy::kExternal}) {
    IdlePolicy policy(strategy, kSpin);
    for (uint64_t now = 0; now < 100'000'000'000; now += 1'000'000'000) {
      EXPECT_FALSE(policy.should_sleep(now));
    }
    EXPECT_EQ(policy.strategy(), strategy);
  }
}

TEST(Idle, SleepSleepsAtOnceEveryTime) {
  IdlePolicy policy(IdleStrategy::kSleep, kSpin);
  for (uint64_t now = 0; now < 10; ++now) EXPECT_TRUE(policy.should_sleep(now));
  policy.worked(11);
  EXPECT_TRUE(policy.should_sleep(12));
}

TEST(Idle, AdaptiveSpinsForItsBudgetFirst) {
  IdlePolicy policy(IdleStrategy::kAdaptive, kSpin);
  EXPECT_FALSE(policy.should_sleep(5000));
  EXPECT_FALSE(policy.should_sleep(5000 + kSpin - 1));
  EXPECT_TRUE(policy.should_sleep(5000 + kSpin));
}

TEST(Idle, TheBudgetHalvesWithEachSpinThatDidNotPayDownToASixteenth) {
  IdlePolicy policy(IdleStrategy::kAdaptive, kSpin);
  uint64_t now = 1'000'000;
  for (const uint64_t budget :
       {kSpin, kSpin / 2, kSpin / 4, kSpin / 8, kSpin / 16, kSpin / 16, kSpin / 16}) {
    EXPECT_EQ(policy.budget_ns(), budget);
    const uint64_t begin = now;
    now = spin_until_asleep(policy, now);
    EXPECT_EQ(now - begin, budget);
    now += 10'000'000;  // asleep
  }
}

TEST(Idle, ASpinThatCaughtWorkRestoresTheBudget) {
  IdlePolicy policy(IdleStrategy::kAdaptive, kSpin);
  uint64_t now = spin_until_asleep(policy, 1000);
  now = spin_until_asleep(policy, now);
  ASSERT_EQ(policy.budget_ns(), kSpin / 4);
  EXPECT_FALSE(policy.should_sleep(now));
  policy.worked(now + 10);
  EXPECT_EQ(policy.budget_ns(), kSpin);
}

TEST(Idle, WorkThatCameBySleepingDoesNotRestoreIt) {
  IdlePolicy policy(IdleStrategy::kAdaptive, kSpin);
  uint64_t now = spin_until_asleep(policy, 1000);
  policy.worked(now + 5000);
  policy.worked(now + 6000);
  EXPECT_EQ(policy.budget_ns(), kSpin / 2);
}

TEST(Idle, EachTurnWithWorkStartsTheSpinAnew) {
  IdlePolicy policy(IdleStrategy::kAdaptive, kSpin);
  uint64_t now = 1000;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(policy.should_sleep(now));
    now += kSpin - 1;
    EXPECT_FALSE(policy.should_sleep(now));
    policy.worked(++now);
  }
}

TEST(Idle, WithoutABudgetAdaptiveSleepsAtOnce) {
  IdlePolicy policy(IdleStrategy::kAdaptive, 0);
  EXPECT_TRUE(policy.should_sleep(1000));
  policy.worked(1001);
  EXPECT_TRUE(policy.should_sleep(1002));
}

}  // namespace
}  // namespace wherry::engine
