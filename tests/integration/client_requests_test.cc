// The life of requests through a real engine: event loops, aggregates, cancel, priority, workers.
#include <sys/epoll.h>

#include <map>

#include "clientlib/worker_transfers.h"
#include "tests/support/client_world.h"

namespace wherry::test {
namespace {

class ClientRequests : public ClientWorld {};

// One epoll of the test's own; a channel's descriptor in it like any other.
class EventLoop {
 public:
  void watch(int fd, uint32_t mode) {
    epoll_event event{};
    event.events = EPOLLIN | mode;
    event.data.fd = fd;
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0);
  }
  // The descriptors that are readable; waits for one.
  std::vector<int> next() {
    epoll_event events[8];
    const int count = epoll_wait(epoll_.get(), events, 8, static_cast<int>(kHangMs));
    EXPECT_GT(count, 0) << "nothing ever woke the loop";
    std::vector<int> fds;
    for (int i = 0; i < count; ++i) fds.push_back(events[i].data.fd);
    return fds;
  }
  bool wakes_at_once() {
    epoll_event event{};
    return epoll_wait(epoll_.get(), &event, 1, 0) != 0;
  }

 private:
  shm::UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
};

class EventLoops : public ClientRequests, public ::testing::WithParamInterface<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(LevelAndEdge, EventLoops, ::testing::Values(0u, uint32_t{EPOLLET}));

TEST_P(EventLoops, AnEventLoopServesTwoChannelsAndTheirNotifications) {
  Client other = attach("other");
  AttachOptions options;
  options.channel.descriptor = true;
  Client client = attach("solo", 0, options);
  const Region region = make_region(client, 1 << 20);
  Channel first = *client.channel();  // notifications arrive here
  Channel second = *client.open_channel(options.channel);
  EventLoop loop;
  std::map<int, Channel*> channels = {{*first.descriptor(), &first},
                                      {*second.descriptor(), &second}};
  ASSERT_EQ(channels.size(), 2u);
  for (const auto& [fd, channel] : channels) loop.watch(fd, GetParam());

  constexpr uint32_t kRounds = 30;
  std::map<Channel*, std::vector<TransferCompleteNotification>> waiting;
  uint32_t completed = 0;
  std::vector<std::string> messages;
  const auto begin = [&](Channel* channel) {
    waiting[channel].push_back(
        *channel->copy_range({region.handle, 0, region.handle, 500'000, 300'000}));
  };
  begin(&first);
  begin(&second);
  while (completed < 2 * kRounds || messages.size() < kRounds) {
    if (messages.size() < kRounds && messages.size() <= completed / 2) {
      ASSERT_TRUE(outcome(other.notify("solo", 0, std::to_string(messages.size()))).ok());
    }
    // Armed before each sleep; what is there already makes it readable.
    for (auto& [fd, channel] : channels) {
      const Result<int> same = channel->descriptor();
      ASSERT_TRUE(same.ok()) << same.status().to_string();
      ASSERT_EQ(*same, fd);
    }
    for (const int fd : loop.next()) {
      Channel* channel = channels[fd];
      channel->poll();
      std::vector<TransferCompleteNotification> still;
      std::vector<TransferCompleteNotification> before = std::move(waiting[channel]);
      waiting[channel].clear();
      for (TransferCompleteNotification& request : before) {
        if (!request.poll()) {
          waiting[channel].push_back(request);
          continue;
        }
        EXPECT_TRUE(request.completion()->ok());
        if (++completed < 2 * kRounds - 1) begin(channel);
      }
    }
    const std::vector<Notification> arrived = *client.poll_notifications();
    for (const Notification& one : arrived) messages.push_back(one.bytes);
  }
  for (uint32_t i = 0; i < kRounds; ++i) EXPECT_EQ(messages[i], std::to_string(i));
}

// A lost wake-up of an event loop: with a descriptor that only tells of completions found by
// itself, the first request below is complete, nobody has told the loop, and nothing more will
// happen.
TEST_F(ClientRequests, WhatAnotherCallFoundCompleteWakesTheEventLoop) {
  Client client = attach("solo");
  ChannelOptions options;
  options.descriptor = true;
  Channel channel = *client.open_channel(options);
  const Region region = make_region(client, 1 << 20);
  EventLoop loop;
  loop.watch(*channel.descriptor(), 0);
  const auto copy = [&](uint64_t bytes) {
    return *channel.copy_range({region.handle, 0, region.handle, 500'000, bytes});
  };
  TransferCompleteNotification first = copy(8);
  TransferCompleteNotification second = copy(400'000);
  ASSERT_TRUE(second.wait(deadline_in_ms(kHangMs)).ok());
  ASSERT_FALSE(first.could_yield()) << "the later one was first";
  const int fd = *channel.descriptor();
  EXPECT_EQ(loop.next(), std::vector<int>{fd});
  EXPECT_TRUE(first.poll());
  // It was told; and who polls the channel has looked.
  *channel.descriptor();
  EXPECT_FALSE(loop.wakes_at_once());
  first = copy(8);
  while (first.could_yield()) channel.poll();
  *channel.descriptor();
  EXPECT_FALSE(loop.wakes_at_once());
}

TEST_F(ClientRequests, ANotificationsDescriptorWakesAnEventLoop) {
  Client client = attach("solo");
  ChannelOptions options;
  options.descriptor = true;
  Channel channel = *client.open_channel(options);
  const Region region = make_region(client, 1 << 20);
  const RangeOp op{region.handle, 0, region.handle, 500'000, 400'000};
  EventLoop loop;
  loop.watch(*channel.descriptor(), 0);
  for (int i = 0; i < 30; ++i) {
    // Of one request, and of an aggregate.
    Result<TransferCompleteNotification> request = channel.copy_range(op);
    if (i % 2 == 1) {
      std::vector<TransferCompleteNotification> members = {*request, *channel.copy_range(op)};
      request = TransferCompleteNotification::aggregate(members);
    }
    while (!request->poll()) {
      Result<int> fd = request->descriptor();
      ASSERT_TRUE(fd.ok()) << fd.status().to_string();
      EXPECT_EQ(loop.next(), std::vector<int>{*fd});
    }
    EXPECT_TRUE(request->wait(0)->ok());
  }
}

TEST_F(ClientRequests, AnAggregateSpansChannels) {
  Client client = attach("solo");
  const Region region = make_region(client, 1 << 20);
  Channel extra = *client.open_channel();
  std::vector<TransferCompleteNotification> members;
  for (uint64_t i = 0; i < 10; ++i) {
    Channel channel = i % 2 == 0 ? *client.channel() : extra;
    members.push_back(
        *channel.copy_range({region.handle, 0, region.handle, 500'000 + 10'000 * i, 10'000}));
  }
  TransferCompleteNotification all = *TransferCompleteNotification::aggregate(members);
  const Result<Completion> completion = all.wait(deadline_in_ms(kHangMs));
  ASSERT_TRUE(completion.ok() && completion->ok());
  EXPECT_EQ(completion->bytes, 100'000u);
  EXPECT_EQ(completion->blocks_ok, 10u);
  EXPECT_TRUE(says(all.descriptor().status(), Code::kUnsupported, {"descriptor"}));
}

TEST_F(ClientRequests, AWorkerTransfersBetweenTheTiersItIsBoundToFromAnyThread) {
  Client client = attach("worker");
  const Placed g1 = place(client, LayoutKind::kLayerSeparateBlockSecond, small_geometry(64));
  const Placed g2 = place(client, LayoutKind::kFullyContiguous, small_geometry(64));
  const Placed g3 = place(client, LayoutKind::kDescriptorList, small_geometry(64));
  g2.fill_all(8);
  DirectWorker worker(client);
  std::atomic<uint32_t> bound{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      bound += worker.bind(Tier::kG1, g1.layout).ok() ? 1 : 0;
      bound += worker.bind(Tier::kG2, g2.layout).ok() ? 1 : 0;
      bound += worker.bind(Tier::kG3, g3.layout).ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bound.load(), 3u) << "each tier once";
  Image fast(g1);
  Image slow(g3);
  for (uint32_t i = 0; i < 64; ++i) fast.block(63 - i, i, 8);
  for (uint32_t i = 0; i < 64; ++i) slow.block(i, i, 8);
  WorkerTransfers& transfers = worker;
  std::atomic<uint32_t> failures{0};
  threads.clear();
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = t; i < 64; i += 4) {
        const std::vector<BlockId> source = {i};
        const std::vector<BlockId> destination = {63 - i};
        failures +=
            outcome(transfers.execute_local_transfer(Tier::kG2, Tier::kG1, source, destination, {}))
                    .ok()
                ? 0
                : 1;
        failures +=
            outcome(transfers.execute_local_transfer(Tier::kG2, Tier::kG3, source, source, {})).ok()
                ? 0
                : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0u);
  EXPECT_TRUE(fast.holds());
  EXPECT_TRUE(slow.holds());
}

class Held : public HeldWorld {
 protected:
  static constexpr uint64_t kBytes = uint64_t{4} << 20;  // many turns of the poller

  Result<TransferCompleteNotification> copy(Priority priority = Priority::kNormal,
                                            uint64_t bytes = kBytes) {
    TransferOptions options;
    options.priority = priority;
    return client_.channel()->try_copy_range({region_.handle, 0, region_.handle, kBytes, bytes},
                                             options);
  }

  Client client_ = attach("solo");
  Region region_ = make_region(client_, 2 * kBytes);
};

TEST_F(Held, ACancelledRequestEndsQuietAndTheOthersGoOn) {
  std::memset(region_.data, 1, kBytes);
  Result<TransferCompleteNotification> cancelled = Status(Code::kInternal, "");
  Result<TransferCompleteNotification> kept = cancelled;
  Result<TransferCompleteNotification> unread = cancelled;
  {
    Hold engine(*this);
    cancelled = copy();
    for (int i = 0; i < 4; ++i) engine.turn();
    ASSERT_FALSE(cancelled->poll());
    kept = copy();
    unread = copy();
    EXPECT_TRUE(client_.cancel(*cancelled).ok());
    EXPECT_TRUE(unread->cancel().ok());
    Status elsewhere;
    std::thread([&] { elsewhere = kept->cancel(); }).join();
    EXPECT_TRUE(says(elsewhere, Code::kInvalidArgument, {"cancel", "thread"}));
  }
  const Result<Completion> completion = wait(cancelled);
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kCancelled) << completion->to_string();
  EXPECT_TRUE(completion->local_quiet && completion->remote_quiet);
  EXPECT_LT(completion->bytes, kBytes);
  EXPECT_EQ(outcome(unread).code(), Code::kCancelled);
  EXPECT_TRUE(outcome(kept).ok());
  EXPECT_TRUE(cancelled->cancel().ok()) << "of a complete one: nothing happens";
}

TEST_F(Held, AHighPriorityRequestOvertakes) {
  std::vector<TransferCompleteNotification> bulk;
  Hold engine(*this);
  for (int i = 0; i < 4; ++i) bulk.push_back(*copy());
  for (int i = 0; i < 4; ++i) engine.turn();
  TransferCompleteNotification urgent = *copy(Priority::kHigh, 4096);
  for (int i = 0; i < 8; ++i) engine.turn();
  EXPECT_TRUE(urgent.poll());
  for (TransferCompleteNotification& one : bulk) EXPECT_FALSE(one.poll());
}

TEST_F(Held, ASplitRequestThatIsCancelledEndsWithWhatHadArrived) {
  AttachOptions options;
  options.channel.submission_slots = 8;  // 3 slots a record: 15 pairs
  Client client = attach("split", 0, options);
  Geometry g = small_geometry(200);
  g.page_size = 128;
  const Placed from = place(client, LayoutKind::kFullyContiguous, g);
  const Placed to = place(client, LayoutKind::kFullyContiguous, g);
  from.fill_all(2);
  Image after(to);
  Result<TransferCompleteNotification> request = Status(Code::kInternal, "");
  {
    Hold engine(*this);
    request = client.execute_local_transfer(from.layout, to.layout, ids(0, 200), ids(0, 200));
    ASSERT_TRUE(request.ok());
    // The first record of them arrives; the last ones are not even published.
    for (int i = 0; i < 20; ++i) engine.turn();
    request->poll();
    EXPECT_TRUE(request->cancel().ok());
  }
  const Result<Completion> completion = wait(request);
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kCancelled);
  EXPECT_GT(completion->blocks_ok, 0u);
  EXPECT_GT(completion->blocks_failed, 0u);
  EXPECT_EQ(completion->blocks_ok + completion->blocks_failed, 200u);
  ASSERT_EQ(completion->failed.size(), completion->blocks_failed);
  std::vector<bool> failed(200);
  for (const FailedBlock& block : completion->failed) {
    ASSERT_LT(block.index, 200u);
    EXPECT_FALSE(failed[block.index]) << "named once";
    failed[block.index] = true;
  }
  // What is said to have arrived has; a block that failed may have arrived in part.
  for (uint32_t block = 0; block < 200; ++block) {
    if (failed[block]) continue;
    EXPECT_EQ(std::memcmp(to.region.data + to.offset(block, 0, 0),
                          from.region.data + from.offset(block, 0, 0), g.block_bytes()),
              0)
        << block;
  }
}

}  // namespace
}  // namespace wherry::test
