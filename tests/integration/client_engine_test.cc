// The client library against an engine in this process: attach, share, transfer, notify, detach.
#include <sys/mman.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/support/client_world.h"

namespace wherry::test {
namespace {

class ClientEngine : public ClientWorld {};

TEST_F(ClientEngine, AttachesTransfersAndDetaches) {
  {
    Client client = attach("solo");
    EXPECT_EQ(client.engine_state().life, EngineLife::kRunning);
    EXPECT_EQ(client.engine_state().attached, 1u);
    EXPECT_EQ(client.engine_state().engine, "test");
    const Placed from = place(client, LayoutKind::kFullyContiguous);
    const Placed to = place(client, LayoutKind::kLayerSeparateBlockSecond);
    from.fill_all(7);
    Image after(to);
    after.block(1, 6, 7).block(7, 0, 7).block(2, 3, 7);
    const std::vector<BlockId> source = {6, 0, 3};
    const std::vector<BlockId> destination = {1, 7, 2};
    const uint64_t before = monotonic_ns();
    Result<Completion> completion =
        wait(client.execute_local_transfer(from.layout, to.layout, source, destination));
    ASSERT_TRUE(completion.ok()) << completion.status().to_string();
    EXPECT_TRUE(completion->ok()) << completion->to_string();
    EXPECT_EQ(completion->to_string(), "OK");
    EXPECT_EQ(completion->blocks_ok, 3u);
    EXPECT_EQ(completion->bytes, 3 * small_geometry().block_bytes());
    EXPECT_EQ(completion->transport, TransportKind::kMemory);
    EXPECT_TRUE(completion->local_quiet && completion->remote_quiet);
    EXPECT_LE(before, completion->submit_ns);
    EXPECT_LE(completion->submit_ns, completion->start_ns);
    EXPECT_LE(completion->start_ns, completion->end_ns);
    EXPECT_LE(completion->end_ns, monotonic_ns());
    EXPECT_TRUE(after.holds());
  }
  attach("solo");  // the name is free again
}

TEST_F(ClientEngine, AnEmptyListIsDoneAtOnce) {
  Client client = attach("solo");
  const Placed from = place(client, LayoutKind::kFullyContiguous);
  const Placed to = place(client, LayoutKind::kFullyContiguous);
  Result<TransferCompleteNotification> nothing =
      client.execute_local_transfer(from.layout, to.layout, {}, {});
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->could_yield());
  EXPECT_TRUE(nothing->completion()->ok());
  EXPECT_EQ(nothing->completion()->bytes, 0u);
}

TEST_F(ClientEngine, TwoClientsShareAPublishedLayout) {
  Client prefill = attach("prefill", 1);
  Client decode = attach("decode");
  const Placed from = place(prefill, LayoutKind::kFullyContiguous);
  const Placed to = place(decode, LayoutKind::kLayerSeparateBlockFirst);
  from.fill_all(11);
  EXPECT_EQ(decode.find_layout("prefill", 1, Tier::kG2).code(), Code::kUnknownInstance);
  ASSERT_TRUE(prefill.publish(from.layout, Tier::kG2, Rights::kRead, {"decode"}).ok());
  Result<FoundLayout> found = decode.find_layout("prefill", 1, Tier::kG2);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->geometry.num_layers, 3u);
  EXPECT_EQ(found->rights, Rights::kRead);
  EXPECT_NE(found->incarnation, 0u);
  EXPECT_EQ(found->part_bytes, std::vector<uint64_t>{small_geometry().block_bytes() * 8});
  const std::vector<BlockId> blocks = {2, 3};
  Image pulled(to);
  pulled.block(2, 2, 11).block(3, 3, 11);
  EXPECT_TRUE(
      outcome(decode.execute_local_transfer(found->handle, to.layout, blocks, blocks)).ok());
  EXPECT_TRUE(pulled.holds());

  // Published anew with the right to write: what was found before stays stale.
  ASSERT_TRUE(prefill.unpublish(from.layout).ok());
  ASSERT_TRUE(prefill.publish(from.layout, Tier::kG2, Rights::kReadWrite).ok());
  EXPECT_EQ(outcome(decode.execute_local_transfer(found->handle, to.layout, blocks, blocks)).code(),
            Code::kStale);
  EXPECT_TRUE(decode.free_layout(found->handle).ok()) << "its last trace can still be freed";
  Result<FoundLayout> again = decode.find_layout("prefill", 1, Tier::kG2);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->rights, Rights::kReadWrite);
  to.fill_all(12);
  Image pushed(from);
  pushed.block(2, 2, 12).block(3, 3, 12);
  EXPECT_TRUE(
      outcome(decode.execute_local_transfer(to.layout, again->handle, blocks, blocks)).ok());
  EXPECT_TRUE(pushed.holds());
}

TEST_F(ClientEngine, AFindWaitsUntilTheLayoutIsPublished) {
  Client prefill = attach("prefill");
  Client decode = attach("decode");
  const Placed from = place(prefill, LayoutKind::kFullyContiguous);
  Result<FoundLayout> found = Status(Code::kInternal, "not yet");
  std::thread waiting(
      [&] { found = decode.find_layout("prefill", 0, Tier::kG1, deadline_in_ms(kHangMs)); });
  // Other calls of the same client do not wait for that one.
  EXPECT_TRUE(decode.create_region(4096).ok());
  EXPECT_TRUE(prefill.publish(from.layout, Tier::kG1).ok());
  waiting.join();
  EXPECT_TRUE(found.ok()) << found.status().to_string();
}

TEST_F(ClientEngine, AFindGivesUpAtItsDeadline) {
  Client client = attach("solo");
  const uint64_t deadline = deadline_in_ms(2);
  EXPECT_TRUE(says(client.find_layout("nobody", 0, Tier::kG2, deadline).status(),
                   Code::kUnknownInstance, {"nobody/0", "no such client"}));
  EXPECT_GE(monotonic_ns(), deadline);
}

TEST_F(ClientEngine, AHandleFreedByManyThreadsIsFreedOnce) {
  Client owner = attach("owner");
  Client client = attach("solo");
  const Placed published = place(owner, LayoutKind::kFullyContiguous);
  ASSERT_TRUE(owner.publish(published.layout, Tier::kG2).ok());
  for (int round = 0; round < 20; ++round) {
    const LayoutHandle found = client.find_layout("owner", 0, Tier::kG2)->handle;
    const Region region = make_region(client, 4096);
    std::atomic<uint32_t> layouts{0};
    std::atomic<uint32_t> regions{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        layouts += client.free_layout(found).ok() ? 1 : 0;
        regions += client.free_region(region.handle).ok() ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(layouts.load(), 1u);
    EXPECT_EQ(regions.load(), 1u);
  }
}

TEST_F(ClientEngine, SubmitAnswersForEveryOpAndListsAllFailures) {
  Client client = attach("solo");
  const Region region = make_region(client, 1 << 20);
  const Placed layout = place(client, LayoutKind::kDescriptorList);
  std::memset(region.data, 5, 1000);
  const RangeOp good{region.handle, 0, region.handle, 500'000, 1000};
  // Offsets count along the parts of a layout: these bytes lie in two of them.
  const uint64_t block = small_geometry().block_bytes();
  const RangeOp into_layout = RangeOp::write(region.handle, 0, layout.layout, block - 10, 30);
  ASSERT_TRUE(client.submit(std::vector<RangeOp>{good, into_layout}).ok());
  EXPECT_EQ(std::memcmp(region.data, region.data + 500'000, 1000), 0);
  EXPECT_EQ(layout.region.data[layout.spec.parts[0].offset + block - 1], std::byte{5});
  EXPECT_EQ(layout.region.data[layout.spec.parts[1].offset + 19], std::byte{5});
  EXPECT_EQ(layout.region.data[layout.spec.parts[1].offset + 20], kGuard);
  const RangeOp out_of_layout = RangeOp::read(region.handle, 2000, layout.layout, block - 10, 30);
  ASSERT_TRUE(client.submit(std::vector<RangeOp>{out_of_layout}).ok());
  EXPECT_EQ(region.data[2029], std::byte{5});
  EXPECT_TRUE(client.submit({}).ok());

  // What only the engine sees, here the same backing under a second registration, fails alone.
  const shm::UniqueFd memory = sealed_memory(8192);
  const Region one = *client.register_region(memory.get(), 0, 8192, true);
  const Region two = *client.register_region(memory.get(), 4096, 4096);
  const RangeOp overlapping{one.handle, 4000, two.handle, 0, 200};
  std::memset(region.data + 500'000, 0, 1000);
  const Status overlap = client.submit(std::vector<RangeOp>{overlapping, good, overlapping});
  EXPECT_TRUE(says(overlap, Code::kOverlap,
                   {"3 ops", "2 that did not", "\nop 0: OVERLAP: request ", "\nop 2: OVERLAP"}));
  EXPECT_EQ(overlap.message().find("op 1"), std::string::npos) << overlap.message();
  EXPECT_EQ(region.data[500'000], std::byte{5});
}

TEST_F(ClientEngine, MoreOpsThanTheRingHoldsAreAllAnswered) {
  AttachOptions options;
  options.channel.submission_slots = 8;
  Client client = attach("solo", 0, options);
  const Region region = make_region(client, 1 << 20);
  std::vector<RangeOp> ops;
  for (uint64_t i = 0; i < 1000; ++i) {
    std::memset(region.data + i * 16, static_cast<int>(i), 16);
    ops.push_back({region.handle, i * 16, region.handle, 500'000 + i * 16, 16});
  }
  ASSERT_TRUE(client.submit(ops, 60'000'000'000).ok());
  EXPECT_EQ(std::memcmp(region.data, region.data + 500'000, 16'000), 0);
}

TEST_F(ClientEngine, NotificationsTravelBetweenClients) {
  Client prefill = attach("prefill", 2);
  Client decode = attach("decode");
  ASSERT_TRUE(outcome(prefill.notify("decode", 0, "hello")).ok());
  Result<std::vector<Notification>> got = decode.wait_notifications(deadline_in_ms(kHangMs));
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->size(), 1u);
  EXPECT_EQ(got->front().instance, "prefill");
  EXPECT_EQ(got->front().rank, 2u);
  EXPECT_EQ(got->front().bytes, "hello");
  EXPECT_NE(got->front().sender_session, 0u);
  EXPECT_TRUE(decode.poll_notifications()->empty());

  // With a transfer, to the owner of the other side, behind the data.
  const Placed from = place(prefill, LayoutKind::kFullyContiguous);
  const Placed to = place(decode, LayoutKind::kFullyContiguous);
  from.fill_all(4);
  Image after(to);
  after.block(1, 1, 4);
  ASSERT_TRUE(decode.publish(to.layout, Tier::kG2, Rights::kReadWrite).ok());
  const FoundLayout found = *prefill.find_layout("decode", 0, Tier::kG2);
  const std::vector<BlockId> blocks = {1};
  TransferOptions options;
  options.notification = "block 1 is there";
  Result<TransferCompleteNotification> push =
      prefill.execute_local_transfer(from.layout, found.handle, blocks, blocks, options);
  ASSERT_TRUE(push.ok());
  got = decode.wait_notifications(deadline_in_ms(kHangMs));
  ASSERT_TRUE(got.ok() && got->size() == 1);
  EXPECT_EQ(got->front().bytes, "block 1 is there");
  EXPECT_TRUE(after.holds());
  EXPECT_TRUE(outcome(push).ok());

  // A receiver that does not read: its box is full, and nothing is lost silently.
  uint32_t sent = 0;
  Status last;
  for (; last.ok(); ++sent) last = outcome(prefill.notify("decode", 0, "flood"));
  EXPECT_TRUE(says(last, Code::kBoxFull, {"does not read"}));
  EXPECT_EQ(decode.poll_notifications()->size(), sent - 1);
  EXPECT_TRUE(outcome(prefill.notify("decode", 0, "again")).ok());
}

TEST_F(ClientEngine, EachThreadHasAChannelOfItsOwnAndLeavesItToTheNext) {
  Client client = attach("solo");
  const Placed from = place(client, LayoutKind::kFullyContiguous);
  const Placed to = place(client, LayoutKind::kFullyContiguous);
  from.fill_all(1);
  Image after(to);
  for (uint32_t t = 0; t < 4; ++t) after.block(t + 4, t, 1);
  std::atomic<uint32_t> failures{0};
  // More threads in all than channels_per_client allows, four at a time.
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::vector<BlockId> source = {t};
        const std::vector<BlockId> destination = {t + 4};
        for (int i = 0; i < 20; ++i) {
          failures +=
              outcome(client.execute_local_transfer(from.layout, to.layout, source, destination))
                      .ok()
                  ? 0
                  : 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(failures.load(), 0u);
  EXPECT_TRUE(after.holds());
}

TEST_F(ClientEngine, ANotificationIsWatchedFromOtherThreadsAndTakenOverWhenItsThreadHasEnded) {
  Client client = attach("solo");
  const Region region = make_region(client, 1 << 20);
  std::vector<TransferCompleteNotification> requests;
  std::thread([&] {
    Channel extra = *client.open_channel();
    for (int i = 0; i < 10; ++i) {
      requests.push_back(*extra.copy_range({region.handle, 0, region.handle, 500'000, 1000}));
      requests.push_back(*client.channel()->copy_range({region.handle, 0, region.handle, 8000, 8}));
    }
  }).join();
  for (TransferCompleteNotification& request : requests) {
    EXPECT_TRUE(outcome(request).ok());
  }
}

TEST_F(ClientEngine, WhatIsUnderWayWhenTheLastClientGoesEndsAndItsChannelKnows) {
  std::optional<Client> client(attach("solo"));
  const Region region = make_region(*client, 1 << 20);
  Channel channel = *client->open_channel();
  Result<TransferCompleteNotification> request =
      channel.copy_range({region.handle, 0, region.handle, 500'000, 500'000});
  client.reset();
  const Status ended = outcome(request);
  EXPECT_TRUE(ended.ok() || ended.code() == Code::kAborted) << ended.to_string();
  EXPECT_EQ(channel.try_copy_range({region.handle, 0, region.handle, 8000, 8}).code(),
            Code::kEngineGone);
}

TEST_F(ClientEngine, AdoptedMemoryIsTransferredInPlace) {
  Client client = attach("solo");
  constexpr uint64_t kBytes = 1 << 20;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(memory);
  std::memset(bytes, 3, kBytes);
  Result<Region> adopted = client.adopt_region(memory, kBytes, {true});
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_EQ(adopted->data + adopted->offset, bytes);
  const Region other = make_region(client, kBytes);
  ASSERT_TRUE(
      client.submit(std::vector<RangeOp>{{adopted->handle, 0, other.handle, 0, kBytes}}).ok());
  EXPECT_EQ(std::memcmp(other.data, bytes, kBytes), 0);
  std::memset(other.data, 4, kBytes);
  ASSERT_TRUE(
      client.submit(std::vector<RangeOp>{{other.handle, 0, adopted->handle, 0, kBytes}}).ok());
  EXPECT_EQ(bytes[kBytes - 1], std::byte{4});
  EXPECT_TRUE(client.free_region(adopted->handle).ok());
  EXPECT_EQ(bytes[0], std::byte{4}) << "the memory itself stays";
  munmap(memory, kBytes);
}

TEST_F(ClientEngine, TransportsSayWhatIsThere) {
  Client client = attach("solo");
  Result<std::vector<TransportInfo>> transports = client.transports();
  ASSERT_TRUE(transports.ok());
  bool memory = false;
  for (const TransportInfo& one : *transports) {
    if (one.kind == TransportKind::kMemory) memory = one.available && one.level == 3;
    EXPECT_TRUE(one.available || !one.reason.empty()) << one.name;
  }
  EXPECT_TRUE(memory);
}

TEST_F(ClientEngine, ADrainIsToldAndRefusesNewRequests) {
  std::mutex mutex;
  std::vector<EngineState> states;
  std::condition_variable changed;
  AttachOptions options;
  options.on_state = [&](const EngineState& state) {
    std::lock_guard lock(mutex);
    states.push_back(state);
    changed.notify_all();
  };
  Client client = attach("solo", 0, options);
  const Region region = make_region(client, 4096);
  engine_->request_drain(std::chrono::milliseconds(0), "maintenance tonight");
  std::unique_lock lock(mutex);
  const auto saw = [&](EngineLife life) {
    return std::any_of(states.begin(), states.end(),
                       [life](const EngineState& state) { return state.life == life; });
  };
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::milliseconds(kHangMs),
                               [&] { return saw(EngineLife::kStopped); }));
  EXPECT_TRUE(saw(EngineLife::kDraining));
  EXPECT_EQ(states.back().reason, "maintenance tonight");
  lock.unlock();
  const Code code =
      client.submit(std::vector<RangeOp>{{region.handle, 0, region.handle, 100, 10}}).code();
  EXPECT_TRUE(code == Code::kDraining || code == Code::kEngineGone || code == Code::kAborted)
      << code_name(code);
}

TEST_F(ClientEngine, CallsFromTheStateCallbackAreRefusedInsteadOfWaitingForThemselves) {
  std::promise<std::vector<Status>> refused;
  Client client = attach("solo");
  const Placed placed = place(client, LayoutKind::kFullyContiguous);
  client.set_state_callback(
      [&refused, placed, copy = client, done = false](const EngineState&) mutable {
        if (std::exchange(done, true)) return;
        refused.set_value(
            {copy.create_region(4096).status(), copy.register_layout(placed.spec).status(),
             copy.free_layout(placed.layout), copy.free_region(placed.region.handle),
             copy.publish(placed.layout, Tier::kG2), copy.unpublish(placed.layout),
             copy.find_layout("solo", 0, Tier::kG2).status(), copy.find_client("solo", 0).status(),
             copy.transports().status(), copy.open_channel().status(), copy.submit({})});
      });
  engine_->request_stop("enough");
  for (const Status& status : refused.get_future().get()) {
    EXPECT_TRUE(says(status, Code::kInvalidArgument, {"state callback"}));
  }
  client.set_state_callback(nullptr);
}

TEST_F(ClientEngine, TheLastCopyOfAClientMayGoInItsStateCallback) {
  std::promise<void> gone;
  {
    Client client = attach("solo");
    auto last = std::make_shared<std::optional<Client>>(client);
    client.set_state_callback([&gone, last, done = false](const EngineState&) mutable {
      last->reset();
      if (!std::exchange(done, true)) gone.set_value();
    });
  }
  engine_->request_drain(std::chrono::milliseconds(0), "maintenance");
  gone.get_future().wait();
}

TEST_F(ClientEngine, TheStateIsToldBeforeAttachReturnsAndUntilTheLastClientHasGone) {
  std::vector<EngineLife> seen;
  AttachOptions options;
  options.on_state = [&seen](const EngineState& state) { seen.push_back(state.life); };
  {
    Client client = attach("solo", 0, options);
    EXPECT_EQ(seen, std::vector<EngineLife>{EngineLife::kRunning});
  }
  EXPECT_EQ(seen, (std::vector<EngineLife>{EngineLife::kRunning, EngineLife::kDetached}));
}

}  // namespace
}  // namespace wherry::test
