// The client library over the death and return of its engine: a wherryd of its own, killed and
// started.
#include <poll.h>

#include <cstring>
#include <thread>

#include "tests/support/engine_process.h"

namespace wherry::test {
namespace {

TEST_F(ClientRestart, HandlesAndPublicationsSurviveTheEnginesDeathAndFoundHandlesDoNot) {
  EngineProcess engine(run_dir_);
  States owner_states;
  States finder_states;
  Client owner = attach("owner", &owner_states);
  Client finder = attach("finder", &finder_states);
  Region source = *owner.create_region(geometry().block_bytes() * 64);
  Region destination = *finder.create_region(geometry().block_bytes() * 64);
  const LayoutHandle from = *owner.register_layout(fully_contiguous(source.handle, 0, geometry()));
  const LayoutHandle to =
      *finder.register_layout(fully_contiguous(destination.handle, 0, geometry()));
  ASSERT_TRUE(owner.publish(from, Tier::kG2).ok());
  FoundLayout found = *finder.find_layout("owner", 0, Tier::kG2);
  const std::vector<BlockId> blocks = {3, 9};
  ASSERT_TRUE(wait(finder.execute_local_transfer(found.handle, to, blocks, blocks))->ok());

  const uint64_t before = finder.engine_state().incarnation;
  EXPECT_EQ(engine.end(SIGKILL), -SIGKILL);
  ASSERT_TRUE(owner_states.wait_for(EngineLife::kGone, 1));
  ASSERT_TRUE(finder_states.wait_for(EngineLife::kGone, 1));
  EXPECT_EQ(finder.execute_local_transfer(found.handle, to, blocks, blocks).code(),
            Code::kEngineGone);
  EXPECT_EQ(finder.create_region(4096).code(), Code::kEngineGone);
  engine.start();
  ASSERT_TRUE(owner_states.wait_for(EngineLife::kRunning, 2));
  ASSERT_TRUE(finder_states.wait_for(EngineLife::kRunning, 2));
  EXPECT_NE(finder.engine_state().incarnation, before);
  EXPECT_EQ(finder_states.last().reason, "");

  EXPECT_EQ(finder.execute_local_transfer(found.handle, to, blocks, blocks).code(), Code::kStale);
  Result<FoundLayout> again = finder.find_layout("owner", 0, Tier::kG2, deadline_in_ms(kWaitMs));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  std::memset(source.data, 77, source.bytes);
  Result<Completion> pulled =
      wait(finder.execute_local_transfer(again->handle, to, blocks, blocks));
  ASSERT_TRUE(pulled.ok() && pulled->ok());
  EXPECT_EQ(destination.data[9 * geometry().block_bytes()], std::byte{77});
  EXPECT_EQ(destination.data[10 * geometry().block_bytes()], std::byte{0});
  EXPECT_TRUE(finder.free_layout(found.handle).ok());
  EXPECT_TRUE(wait(owner.notify("finder", 0, "still here"))->ok());
  EXPECT_EQ(finder.wait_notifications(deadline_in_ms(kWaitMs))->size(), 1u);
}

TEST_F(ClientRestart, EveryRequestEndsExactlyOnceWhenTheEngineIsKilledUnderLoad) {
  EngineProcess engine(run_dir_);
  States states;
  Client client = attach("solo", &states);
  Geometry g = geometry();
  g.inner_dim = 4096;
  Region region = *client.create_region(2 * g.block_bytes() * 64);
  const LayoutHandle from = *client.register_layout(fully_contiguous(region.handle, 0, g));
  const LayoutHandle to =
      *client.register_layout(fully_contiguous(region.handle, g.block_bytes() * 64, g));
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < 64; ++i) blocks.push_back(i);
  uint64_t unknown = 0;
  uint64_t not_started = 0;
  for (uint32_t life = 1; life <= 5; ++life) {
    // Each round of the source has its own pattern; what was not started must not have been moved.
    std::memset(region.data, static_cast<int>(life), region.bytes / 2);
    std::memset(region.data + region.bytes / 2, 0xee, region.bytes / 2);
    std::vector<TransferCompleteNotification> requests;
    for (const BlockId block : blocks) {
      const std::vector<BlockId> one = {block};
      Result<TransferCompleteNotification> request =
          client.execute_local_transfer(from, to, one, one);
      if (!request.ok() && block > 40) {
        EXPECT_EQ(request.code(), Code::kEngineGone);  // the library has noticed already
        break;
      }
      ASSERT_TRUE(request.ok()) << request.status().to_string();
      requests.push_back(*request);
      if (block == 40) engine.send(SIGKILL);
    }
    engine.end(SIGKILL);
    for (uint32_t i = 0; i < requests.size(); ++i) {
      Result<Completion> completion = requests[i].wait(deadline_in_ms(kWaitMs));
      ASSERT_TRUE(completion.ok()) << completion.status().to_string();
      const std::byte* at = region.data + region.bytes / 2 + i * g.block_bytes();
      switch (completion->status) {
        case Code::kOk:
          EXPECT_EQ(at[0], std::byte(life));
          EXPECT_EQ(at[g.block_bytes() - 1], std::byte(life));
          break;
        case Code::kNotStarted:
          ++not_started;
          EXPECT_EQ(at[0], std::byte{0xee});
          EXPECT_EQ(at[g.block_bytes() - 1], std::byte{0xee});
          break;
        case Code::kEngineGone:
          ++unknown;
          break;
        default:
          ADD_FAILURE() << completion->to_string();
      }
      EXPECT_TRUE(completion->local_quiet);
    }
    engine.start();
    ASSERT_TRUE(states.wait_for(EngineLife::kRunning, life + 1));
  }
  RecordProperty("unknown", std::to_string(unknown));
  RecordProperty("not_started", std::to_string(not_started));
  EXPECT_GT(not_started, 0u);
}

TEST_F(ClientRestart, ADrainedEngineIsComeBackToAsWell) {
  EngineProcess engine(run_dir_);
  States states;
  Client client = attach("solo", &states);
  Region region = *client.create_region(4096);
  EXPECT_EQ(engine.end(SIGTERM), 0);
  ASSERT_TRUE(states.wait_for(EngineLife::kStopped, 1));
  engine.start();
  ASSERT_TRUE(states.wait_for(EngineLife::kRunning, 2));
  EXPECT_TRUE(client.submit(std::vector<RangeOp>{{region.handle, 0, region.handle, 100, 50}}).ok());
}

TEST_F(ClientRestart, AllChannelsAndThreadsComeBack) {
  EngineProcess engine(run_dir_);
  States states;
  Client client = attach("solo", &states);
  Region region = *client.create_region(1 << 16);
  ChannelOptions options;
  options.descriptor = true;
  Channel extra = *client.open_channel(options);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> after{0};
  std::atomic<uint32_t> lives{1};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<RangeOp> op = {
          {region.handle, t * 1000, region.handle, 32'768 + t * 1000, 1000}};
      while (!stop.load()) {
        if (client.submit(op).ok() && lives.load() == 2) ++after;
      }
    });
  }
  engine.end(SIGKILL);
  engine.start();
  EXPECT_TRUE(states.wait_for(EngineLife::kRunning, 2));
  lives = 2;
  const uint64_t give_up = deadline_in_ms(kWaitMs);
  while (after.load() < 100 && monotonic_ns() < give_up) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(after.load(), 100u);
  Result<TransferCompleteNotification> request =
      extra.copy_range({region.handle, 0, region.handle, 1000, 10});
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_TRUE(request->wait(deadline_in_ms(kWaitMs))->ok());
  EXPECT_TRUE(extra.descriptor().ok());
}

TEST_F(ClientRestart, WhatASmallerEngineRefusesSaysSoUntilALargerOneTakesIt) {
  EngineProcess engine(run_dir_);
  States states;
  Client client = attach("solo", &states);
  const Region small = *client.create_region(4096);
  const Region large = *client.create_region(1 << 20);
  const LayoutHandle layout =
      *client.register_layout(fully_contiguous(large.handle, 0, geometry(8)));
  const LayoutHandle target =
      *client.register_layout(fully_contiguous(large.handle, 1 << 19, geometry(8)));
  const std::vector<BlockId> block = {3};
  Channel extra = *client.open_channel();
  engine.end(SIGKILL);
  engine.start(R"("pollers": [{"idle": "sleep"}],
                  "limits": {"registered_bytes_per_client": 65536, "channels_per_client": 1})");
  ASSERT_TRUE(states.wait_for(EngineLife::kRunning, 2));
  const std::string reason = client.engine_state().reason;
  EXPECT_NE(reason.find("region " + std::to_string(large.handle.value)), std::string::npos)
      << reason;
  EXPECT_NE(reason.find("layout " + std::to_string(layout.value)), std::string::npos) << reason;
  EXPECT_NE(reason.find("limits.registered_bytes_per_client"), std::string::npos) << reason;
  EXPECT_NE(reason.find("limits.channels_per_client"), std::string::npos) << reason;

  const RangeOp in_small{small.handle, 0, small.handle, 100, 50};
  EXPECT_TRUE(client.submit(std::vector<RangeOp>{in_small}).ok());
  const Status refused = client.submit(std::vector<RangeOp>{{large.handle, 0, small.handle, 0, 1}});
  EXPECT_EQ(refused.code(), Code::kNoResources);
  EXPECT_NE(refused.message().find("engine_state()"), std::string::npos) << refused.message();
  EXPECT_EQ(client.execute_local_transfer(layout, target, block, block).code(), Code::kNoResources);
  EXPECT_EQ(client.publish(layout, Tier::kG2).code(), Code::kNoResources);
  EXPECT_EQ(extra.copy_range(in_small).code(), Code::kNoResources);

  engine.end(SIGKILL);
  engine.start();
  ASSERT_TRUE(states.wait_for(EngineLife::kRunning, 3));
  EXPECT_EQ(client.engine_state().reason, "");
  EXPECT_TRUE(wait(client.execute_local_transfer(layout, target, block, block))->ok());
  EXPECT_TRUE(wait(extra.copy_range(in_small))->ok());
}

TEST_F(ClientRestart, WhatIsFreedWhileNoEngineIsThereIsNotRegisteredAgain) {
  EngineProcess engine(run_dir_);
  States owner_states;
  Client owner = attach("owner", &owner_states);
  const Region kept = *owner.create_region(1 << 20);
  const Region freed = *owner.create_region(1 << 20);
  const LayoutHandle unpublished =
      *owner.register_layout(fully_contiguous(kept.handle, 0, geometry(8)));
  const LayoutHandle gone = *owner.register_layout(fully_contiguous(freed.handle, 0, geometry(8)));
  ASSERT_TRUE(owner.publish(unpublished, Tier::kG1).ok());
  ASSERT_TRUE(owner.publish(gone, Tier::kG2).ok());
  engine.end(SIGKILL);
  ASSERT_TRUE(owner_states.wait_for(EngineLife::kGone, 1));
  EXPECT_TRUE(owner.unpublish(unpublished).ok());
  EXPECT_TRUE(owner.free_layout(gone).ok());
  EXPECT_EQ(owner.free_layout(gone).code(), Code::kStale);
  EXPECT_TRUE(owner.free_region(freed.handle).ok());
  EXPECT_EQ(owner.publish(unpublished, Tier::kG2).code(), Code::kEngineGone);
  EXPECT_EQ(owner.register_region(-1, 0, 4096).code(), Code::kInvalidArgument);
  engine.start();
  ASSERT_TRUE(owner_states.wait_for(EngineLife::kRunning, 2));
  Client finder = attach("finder", nullptr);
  EXPECT_EQ(finder.find_layout("owner", 0, Tier::kG1).code(), Code::kUnknownInstance);
  EXPECT_EQ(finder.find_layout("owner", 0, Tier::kG2).code(), Code::kUnknownInstance);
  EXPECT_TRUE(owner.publish(unpublished, Tier::kG2).ok());
  EXPECT_TRUE(finder.find_layout("owner", 0, Tier::kG2).ok());
}

TEST_F(ClientRestart, AnEventLoopThatWaitsForNotificationsOutlivesTheEngine) {
  EngineProcess engine(run_dir_);
  AttachOptions options;
  options.instance = "listener";
  options.run_dir = run_dir_;
  options.wait_ms = kWaitMs;
  options.back_off_min_ms = 5;
  options.channel.descriptor = true;
  Client listener = *Client::attach(options);
  Channel channel = *listener.channel();
  const auto next_message = [&]() -> std::string {
    for (;;) {
      const std::vector<Notification> arrived = *listener.poll_notifications();
      if (!arrived.empty()) return arrived.front().bytes;
      pollfd one{*channel.descriptor(), POLLIN, 0};
      EXPECT_EQ(poll(&one, 1, static_cast<int>(kWaitMs)), 1) << "nothing woke the loop";
    }
  };
  States states;
  Client sender = attach("sender", &states);
  ASSERT_TRUE(wait(sender.notify("listener", 0, "one"))->ok());
  EXPECT_EQ(next_message(), "one");
  engine.end(SIGKILL);
  std::thread restart([&] {
    engine.start();
    EXPECT_TRUE(states.wait_for(EngineLife::kRunning, 2));
    Result<Completion> sent = Status(Code::kInternal, "");
    do {  // the listener may come back later
      sent = wait(sender.notify("listener", 0, "two"));
    } while (!sent.ok() || !sent->ok());
  });
  EXPECT_EQ(next_message(), "two");
  restart.join();
}

TEST_F(ClientRestart, WithoutReattachingAClientStaysWithoutAnEngine) {
  EngineProcess engine(run_dir_);
  AttachOptions options;
  options.instance = "solo";
  options.run_dir = run_dir_;
  options.wait_ms = kWaitMs;
  options.reattach = false;
  Client client = *Client::attach(options);
  const Region region = *client.create_region(4096);
  engine.end(SIGKILL);
  engine.start();
  attach("other", nullptr);
  const std::vector<RangeOp> op = {{region.handle, 0, region.handle, 100, 50}};
  while (client.submit(op).code() != Code::kEngineGone) {
  }
  EXPECT_EQ(client.engine_state().life, EngineLife::kGone);
  EXPECT_EQ(client.engine_state().attached, 1u);
}

TEST_F(ClientRestart, ARestartedClientIsTakenBackUnderItsName) {
  EngineProcess engine(run_dir_);
  attach("first", nullptr);  // the engine runs
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    AttachOptions options;
    options.instance = "solo";
    options.run_dir = run_dir_;
    Result<Client> client = Client::attach(options);
    const char answer = client.ok() && client->create_region(1 << 20).ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  attach("solo", nullptr);
}

TEST_F(ClientRestart, AForkedChildLeavesTheParentsSessionAlone) {
  EngineProcess engine(run_dir_);
  Client client = attach("solo", nullptr);
  Region region = *client.create_region(4096);
  const pid_t child = fork();
  if (child == 0) {
    // Its copy of the client goes without a word to the engine, and can do nothing.
    Code code = Code::kOk;
    {
      Client gone = client;
      code = gone.submit(std::vector<RangeOp>{{region.handle, 0, region.handle, 100, 50}}).code();
      client = Client(gone);
    }
    _exit(code == Code::kAborted ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(client.submit(std::vector<RangeOp>{{region.handle, 0, region.handle, 100, 50}}).ok());
}

TEST_F(ClientRestart, WithoutAnEngineAttachSaysWhereItLooked) {
  AttachOptions options;
  options.instance = "solo";
  options.run_dir = run_dir_;
  options.wait_ms = 0;
  Result<Client> client = Client::attach(options);
  EXPECT_EQ(client.code(), Code::kUnreachable);
  EXPECT_NE(client.status().message().find(run_dir_), std::string::npos)
      << client.status().message();
}

}  // namespace
}  // namespace wherry::test
