// Clients that take all they can get, beside clients that want their share.
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <iostream>

#include "tests/support/client_world.h"
#include "tests/support/counts.h"
#include "tests/support/engine_holdings.h"
#include "tests/support/engine_process.h"
#include "tests/support/traffic.h"

namespace wherry::test {
namespace {

constexpr uint64_t kBytes = 256 << 10;

class Greed : public HeldWorld {};

TEST_F(Greed, AClientThatNeverReapsRunsOutOfRoomAloneAndGoesOnWhenItReaps) {
  Traffic other(attach("other"), 8, kBytes);
  Client greedy = attach("greedy");
  ChannelOptions options;
  options.submission_slots = 8;
  Channel channel = *greedy.open_channel(options);
  constexpr uint64_t kLarge = uint64_t{1} << 20;  // not done in the few turns below
  const Region region = make_region(greedy, 2 * kLarge);
  const RangeOp op{region.handle, 0, region.handle, kLarge, kLarge};
  std::vector<TransferCompleteNotification> accepted;
  const auto take_all = [&] {
    for (;;) {
      Result<TransferCompleteNotification> one = channel.try_copy_range(op);
      if (!one.ok()) return one.code();
      accepted.push_back(*one);
    }
  };
  {
    Hold engine(*this);
    EXPECT_EQ(take_all(), Code::kRingFull) << "nothing was read yet";
    EXPECT_EQ(accepted.size(), 4u) << "two slots each";
    // A channel that has been quiet may be looked at some turns later only.
    Code refusal = Code::kRingFull;
    for (int turns = 0; turns < 8 && refusal == Code::kRingFull; ++turns) {
      engine.turn();
      refusal = take_all();
    }
    EXPECT_EQ(refusal, Code::kNoCredit) << "all were read, and none has completed";
    EXPECT_EQ(accepted.size(), 8u) << "the completion ring has twice the slots";
  }

  const auto stalled = [&](const char* instance) {
    return (flags_of(engine_->run_dir(), instance) & shm::kClientStalled) != 0;
  };
  const uint64_t give_up = deadline_in_ms(kHangMs);
  while (!stalled("greedy")) {
    ASSERT_LT(monotonic_ns(), give_up) << "never flagged";
    const Status copied = other.next();
    ASSERT_TRUE(copied.ok()) << copied.to_string();
  }
  EXPECT_FALSE(stalled("other"));

  for (TransferCompleteNotification& one : accepted) {
    EXPECT_TRUE(one.wait(deadline_in_ms(kHangMs))->ok());
  }
  EXPECT_TRUE(wait(channel.copy_range(op))->ok());
  while (stalled("greedy") && monotonic_ns() < give_up) std::this_thread::yield();
  EXPECT_FALSE(stalled("greedy"));
  EXPECT_TRUE(other.finish().ok());
}

// What the client in a hurry does, and what came of it.
enum class Mood : uint32_t { kRests, kSpins, kHurries };

struct Hurry {
  std::atomic<Mood> wanted;
  std::atomic<Mood> mood;
  std::atomic<uint64_t> late;
  std::atomic<uint64_t> in_time;
  std::atomic<uint64_t> odd;
};

// Copies with a deadline of a microsecond, as many at once as there is room for, without a pause.
[[noreturn]] void hurry(Client client, Hurry* hurry) {
  Channel channel = *client.channel();
  const Region region = *client.create_region(2 * kBytes);
  TransferOptions options;
  options.timeout_ns = 1000;
  std::vector<TransferCompleteNotification> copies;
  for (;;) {
    const Mood wanted = hurry->wanted.load();
    for (int i = 0; wanted == Mood::kHurries && i < 64; ++i) {
      Result<TransferCompleteNotification> copy =
          channel.try_copy_range({region.handle, 0, region.handle, kBytes, kBytes}, options);
      if (!copy.ok()) break;
      copies.push_back(*copy);
    }
    channel.poll();
    std::erase_if(copies, [&](const TransferCompleteNotification& copy) {
      const Completion* completion = copy.completion();
      if (completion == nullptr) return false;
      const bool late = completion->status == Code::kTimedOut;
      ++(late ? hurry->late : completion->ok() ? hurry->in_time : hurry->odd);
      return true;
    });
    if (copies.empty() || wanted == Mood::kHurries) hurry->mood = wanted;
    if (wanted == Mood::kRests) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Deadlines : public ClientRestart {};

TEST_F(Deadlines, OfAMicrosecondWithoutPauseLeaveAnotherClientItsShare) {
  constexpr int kRounds = 5;
  const auto copies = static_cast<uint32_t>(counted(20'000));
  EngineProcess engine(run_dir_);
  auto* shared = static_cast<Hurry*>(
      mmap(nullptr, sizeof(Hurry), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = forked();
  if (child == 0) hurry(attach("hurried", nullptr), shared);
  Traffic other(attach("other", nullptr), 8, kBytes);
  const uint64_t give_up = deadline_in_ms(kWaitMs);
  const auto time_beside = [&](Mood mood) {
    shared->wanted = mood;
    while (shared->mood.load() != mood && monotonic_ns() < give_up) std::this_thread::yield();
    const uint64_t begin = monotonic_ns();
    for (uint32_t i = 0; i < copies; ++i) {
      const Status copied = other.next();
      EXPECT_TRUE(copied.ok()) << copied.to_string();
    }
    return static_cast<double>(monotonic_ns() - begin);
  };
  std::vector<double> shares;
  std::vector<double> shares_of_spinning;  // what the loss of a core alone costs
  for (int round = 0; round < kRounds; ++round) {
    const double alone = time_beside(Mood::kRests);
    shares_of_spinning.push_back(alone / time_beside(Mood::kSpins));
    const uint64_t late = shared->late.load();
    shares.push_back(alone / time_beside(Mood::kHurries));
    EXPECT_GT(shared->late.load(), late) << "it went on beside the other";
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  const double share = median(shares);
  std::cout << shared->late << " copies were late, " << shared->in_time
            << " in time; the other client had " << share << " of its throughput (" << shares[0]
            << " to " << shares.back() << "), and " << median(shares_of_spinning)
            << " beside a client that only spins\n";
  RecordProperty("share", std::to_string(share));
  EXPECT_EQ(shared->odd.load(), 0u);
  EXPECT_GT(share, 0.8 / 4) << "wanted 0.8; a busy machine takes some";
  munmap(shared, sizeof(Hurry));
}

}  // namespace
}  // namespace wherry::test
