// Every call of the client library from many threads while engines die and return under them.
#include <atomic>
#include <initializer_list>
#include <thread>

#include "tests/support/engine_process.h"

namespace wherry::test {
namespace {

// Every call, from several threads, over the deaths of two engines and the drain of one: nothing
// hangs, nothing is answered with a code that is not in the contract, and all of it works
// afterwards.
TEST_F(ClientRestart, EveryCallFromManyThreadsSurvivesRestarts) {
  EngineProcess engine(run_dir_);
  States states;
  States other_states;
  Client client = attach("solo", &states);
  Client other = attach("other", &other_states);
  const Region region = *client.create_region(1 << 16);
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> odd{0};
  const auto allowed = [&odd](const Status& status, std::initializer_list<Code> codes) {
    const bool known =
        status.ok() || std::find(codes.begin(), codes.end(), status.code()) != codes.end();
    if (!known && ++odd < 5) ADD_FAILURE() << status.to_string();
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!stop.load()) {
      Result<Region> mine = client.create_region(8192);
      allowed(mine.status(), {Code::kEngineGone, Code::kAborted, Code::kDraining});
      if (!mine.ok()) continue;
      Result<LayoutHandle> layout =
          client.register_layout(fully_contiguous(mine->handle, 0, geometry(1, 64)));
      allowed(layout.status(), {Code::kEngineGone, Code::kAborted, Code::kDraining});
      if (layout.ok()) {
        allowed(client.publish(*layout, Tier::kG2),
                {Code::kEngineGone, Code::kAborted, Code::kDraining});
        allowed(client.unpublish(*layout),
                {Code::kEngineGone, Code::kAborted, Code::kInvalidArgument});
        allowed(client.free_layout(*layout), {Code::kAborted});
      }
      allowed(client.free_region(mine->handle), {Code::kAborted});
    }
  });
  threads.emplace_back([&] {
    while (!stop.load()) {
      Result<FoundLayout> found = other.find_layout("solo", 0, Tier::kG2, deadline_in_ms(1));
      allowed(found.status(), {Code::kEngineGone, Code::kUnknownInstance, Code::kStale,
                               Code::kDraining, Code::kAborted});
      if (found.ok()) allowed(other.free_layout(found->handle), {Code::kAborted});
      Result<Completion> sent = wait(other.notify("solo", 0, "tick"));
      allowed(sent.ok() && !sent->ok() ? Status(sent->status, sent->to_string()) : sent.status(),
              {Code::kEngineGone, Code::kNotStarted, Code::kUnknownInstance, Code::kStale,
               Code::kDraining, Code::kAborted, Code::kBoxFull});
    }
  });
  threads.emplace_back([&] {
    const std::vector<RangeOp> op = {{region.handle, 0, region.handle, 32'768, 1000}};
    while (!stop.load()) {
      allowed(client.submit(op),
              {Code::kEngineGone, Code::kNotStarted, Code::kDraining, Code::kAborted});
    }
  });
  threads.emplace_back([&] {
    while (!stop.load()) {
      ChannelOptions options;
      options.submission_slots = 8;
      options.descriptor = true;
      Result<Channel> channel = client.open_channel(options);
      allowed(channel.status(),
              {Code::kEngineGone, Code::kNoResources, Code::kAborted, Code::kDraining});
      if (!channel.ok()) continue;
      std::vector<TransferCompleteNotification> requests;
      for (int i = 0; i < 20; ++i) {
        Result<TransferCompleteNotification> one =
            channel->copy_range({region.handle, 2000, region.handle, 40'000, 1000});
        allowed(one.status(), {Code::kEngineGone, Code::kDraining});
        if (one.ok()) requests.push_back(*one);
      }
      for (TransferCompleteNotification& one : requests) {
        Result<Completion> done = one.wait(deadline_in_ms(kWaitMs));
        allowed(done.status(), {});
        if (!done.ok() || done->ok()) continue;
        allowed(Status(done->status, done->to_string()),
                {Code::kEngineGone, Code::kNotStarted, Code::kDraining, Code::kAborted});
      }
    }
  });
  for (uint32_t life = 1; life <= 3; ++life) {
    // Not sooner than everybody has worked with this one.
    for (int i = 0; i < 20; ++i) {
      Result<std::vector<Notification>> got = client.wait_notifications(deadline_in_ms(kWaitMs));
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      ASSERT_FALSE(got->empty());
    }
    engine.end(life == 2 ? SIGTERM : SIGKILL);
    engine.start();
    ASSERT_TRUE(states.wait_for(EngineLife::kRunning, life + 1));
    ASSERT_TRUE(other_states.wait_for(EngineLife::kRunning, life + 1));
  }
  EXPECT_FALSE(client.wait_notifications(deadline_in_ms(kWaitMs))->empty());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(odd.load(), 0u);
  EXPECT_TRUE(client.submit(std::vector<RangeOp>{{region.handle, 0, region.handle, 9, 9}}).ok());
  EXPECT_EQ(client.engine_state().reason, "");
}

}  // namespace
}  // namespace wherry::test
