#include "engine/control/affinity.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/control/lock_file.h"

namespace wherry::engine {
namespace {

PollerConfig poller(Pin pin, uint32_t cpu, IdleStrategy idle = IdleStrategy::kAdaptive) {
  PollerConfig config;
  config.pin = pin;
  config.cpu = cpu;
  config.idle = idle;
  return config;
}

Config config_of(std::vector<PollerConfig> pollers) {
  Config config;
  config.pollers = std::move(pollers);
  return config;
}

const CoreSet kFour{{2, 3, 8, 9}, 0};

std::string refusal(const Config& config, const CoreSet& cores) {
  const Result<std::vector<int>> assigned = assign_cores(config, cores);
  EXPECT_FALSE(assigned.ok());
  EXPECT_EQ(assigned.code(), Code::kInvalidArgument);
  return assigned.status().message();
}

TEST(Affinity, CoresAreTakenAsNamedByOffsetOrNotAtAll) {
  const Config config =
      config_of({poller(Pin::kCpu, 9), poller(Pin::kOffset, 2), poller(Pin::kNone, 0)});
  const Result<std::vector<int>> assigned = assign_cores(config, kFour);
  ASSERT_TRUE(assigned.ok()) << assigned.status().to_string();
  EXPECT_EQ(*assigned, (std::vector<int>{9, 8, kNotPinned}));
}

TEST(Affinity, ACoreOutsideTheSetIsRefusedAndTheSetIsNamed) {
  const std::string message =
      refusal(config_of({poller(Pin::kNone, 0), poller(Pin::kCpu, 4)}), kFour);
  EXPECT_EQ(message,
            "/pollers/1/cpu: wanted a core that this process may use (cores 2-3,8-9), got 4; "
            "choose one of these, or "
            "allow this process that one");
}

TEST(Affinity, AnOffsetPastTheEndIsRefused) {
  EXPECT_TRUE(assign_cores(config_of({poller(Pin::kOffset, 3)}), kFour).ok());
  const std::string message = refusal(config_of({poller(Pin::kOffset, 4)}), kFour);
  EXPECT_NE(message.find("an offset below 4"), std::string::npos) << message;
}

TEST(Affinity, OneCoreTwiceIsRefusedAlsoWhenNamedInTwoWays) {
  const std::string message =
      refusal(config_of({poller(Pin::kCpu, 3), poller(Pin::kOffset, 1)}), kFour);
  EXPECT_EQ(message.substr(0, 49), "/pollers/1/cpu: wanted a core of its own, got 3, ");
  Config oversubscribed = config_of({poller(Pin::kCpu, 3), poller(Pin::kCpu, 3)});
  oversubscribed.allow_oversubscription = true;
  EXPECT_FALSE(assign_cores(oversubscribed, kFour).ok());
}

TEST(Affinity, BusyPollersMustLeaveACore) {
  const PollerConfig busy = poller(Pin::kNone, 0, IdleStrategy::kBusy);
  EXPECT_TRUE(assign_cores(config_of({busy, busy, busy}), kFour).ok());
  Config four = config_of({busy, busy, busy, busy});
  EXPECT_EQ(refusal(four, kFour).substr(0, 9), "/pollers:");
  four.allow_oversubscription = true;
  EXPECT_TRUE(assign_cores(four, kFour).ok());
  const PollerConfig adaptive = poller(Pin::kNone, 0);
  EXPECT_TRUE(
      assign_cores(config_of({adaptive, adaptive, adaptive, adaptive, adaptive}), kFour).ok());
}

TEST(Affinity, AQuotaLowersWhatIsUsable) {
  const PollerConfig busy = poller(Pin::kNone, 0, IdleStrategy::kBusy);
  CoreSet cores = kFour;
  cores.quota = 2.5;
  EXPECT_TRUE(assign_cores(config_of({busy}), cores).ok());
  EXPECT_NE(refusal(config_of({busy, busy}), cores).find("quota of 2.5"), std::string::npos);
  cores.quota = 0.2;
  EXPECT_EQ(cores.usable(), 1.0);
  cores.quota = 100;
  EXPECT_EQ(cores.usable(), 4.0);
}

TEST(Affinity, EveryProblemIsReported) {
  const std::string message = refusal(config_of({poller(Pin::kCpu, 0), poller(Pin::kOffset, 9),
                                                 poller(Pin::kCpu, 2), poller(Pin::kCpu, 2)}),
                                      kFour);
  for (const char* pointer : {"/pollers/0/cpu:", "\n/pollers/1/cpu:", "\n/pollers/3/cpu:"}) {
    EXPECT_NE(message.find(pointer), std::string::npos) << message;
  }
}

class AffinityFiles : public testing::Test {
 protected:
  AffinityFiles() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "wherry-affinity-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~AffinityFiles() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double quota() const { return usable_cores(root_ + "/proc", root_ + "/cgroup")->quota; }

  std::string root_;
};

TEST_F(AffinityFiles, TheSmallestQuotaOfAllAncestorsHolds) {
  EXPECT_EQ(quota(), 0);
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
  write("cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(AffinityFiles, TheQuotaOfVersion1IsRead) {
  write("proc/self/cgroup", "3:cpu,cpuacct:/a\n");
  write("cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0);
  write("cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(AffinityFiles, ABusyPollersCoreIsClaimedForAllAndItsOwnerNamed) {
  const Config config = config_of({poller(Pin::kCpu, 2, IdleStrategy::kBusy)});
  std::vector<std::string> warnings;
  {
    const Result<CoreClaims> first = CoreClaims::take(config, {2}, root_ + "/run", &warnings);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    const Result<CoreClaims> second = CoreClaims::take(config, {2}, root_ + "/run", &warnings);
    EXPECT_EQ(second.code(), Code::kNotPermitted);
    EXPECT_NE(second.status().message().find("pid " + std::to_string(getpid()) + " (default)"),
              std::string::npos)
        << second.status().message();
    EXPECT_TRUE(CoreClaims::take(config, {3}, root_ + "/run", &warnings).ok());
  }
  EXPECT_TRUE(CoreClaims::take(config, {2}, root_ + "/run", &warnings).ok());
  EXPECT_TRUE(warnings.empty());
}

TEST_F(AffinityFiles, OtherPollersShareAClaimedCoreWithAWarning) {
  std::vector<std::string> warnings;
  const Result<CoreClaims> busy = CoreClaims::take(
      config_of({poller(Pin::kCpu, 2, IdleStrategy::kBusy)}), {2}, root_, &warnings);
  ASSERT_TRUE(busy.ok());
  const Config two = config_of({poller(Pin::kCpu, 3), poller(Pin::kCpu, 2)});
  EXPECT_TRUE(CoreClaims::take(two, {3, 2}, root_, &warnings).ok());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("core 2 is claimed"), std::string::npos) << warnings[0];
  EXPECT_FALSE(is_locked(root_ + "/cpu-3.lock"));
}

TEST(AffinityOfThisHost, AThreadIsPinnedToAnAllowedCoreAndToNoOther) {
  const Result<CoreSet> cores = usable_cores();
  ASSERT_TRUE(cores.ok());
  ASSERT_FALSE(cores->allowed.empty());
  std::thread([&] {
    EXPECT_TRUE(pin_this_thread(kNotPinned).ok());
    EXPECT_TRUE(pin_this_thread(cores->allowed.back()).ok());
    EXPECT_EQ(usable_cores()->allowed, std::vector<int>{cores->allowed.back()});
    EXPECT_FALSE(pin_this_thread(8191).ok());
  }).join();
}

}  // namespace
}  // namespace wherry::engine
