// The client library against an engine in this process: attach, memory, layouts, transfers,
// sharing.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "clientlib/client.h"
#include "clientlib/worker_transfers.h"
#include "tests/support/pattern.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kWaitMs = 60'000;  // only catches hangs

Geometry small() {
  Geometry g;
  g.num_blocks = 8;
  g.num_layers = 3;
  g.outer_dim = 2;
  g.page_size = 16;
  g.inner_dim = 20;
  return g;
}

class ClientEngine : public ::testing::Test {
 protected:
  Client attach(const std::string& instance, uint32_t rank = 0, AttachOptions options = {}) {
    options.instance = instance;
    options.rank = rank;
    options.run_dir = engine_->run_dir();
    Result<Client> client = Client::attach(options);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return *client;
  }

  // A layout in a new region that is filled with guard bytes.
  struct Owned {
    Region region;
    LayoutHandle layout;
    LayoutSpec spec;

    std::byte* at(uint32_t block, uint32_t layer, uint32_t outer) const {
      const Geometry& g = spec.geometry;
      return region.data + spec.parts[part_of(g, block, layer)].offset +
             offset_in_part(g, block, layer, outer);
    }
  };
  static Owned make(Client& client, LayoutKind kind, const Geometry& base = small()) {
    Owned owned;
    Geometry g = base;
    g.kind = kind;
    Result<Region> region = client.create_region(g.part_count() * (g.part_bytes() + 64) + 64);
    EXPECT_TRUE(region.ok()) << region.status().to_string();
    owned.region = *region;
    std::memset(region->data, static_cast<int>(kGuard), region->bytes);
    for (uint32_t part = 0; part < g.part_count(); ++part) {
      owned.spec.parts.push_back(
          {region->handle, 64 + part * (g.part_bytes() + 64), g.part_bytes()});
    }
    owned.spec.geometry = g;
    Result<LayoutHandle> layout = client.register_layout(owned.spec);
    EXPECT_TRUE(layout.ok()) << layout.status().to_string();
    if (layout.ok()) owned.layout = *layout;
    return owned;
  }
  static void fill_all(const Owned& owned, uint64_t seed) {
    const Geometry& g = owned.spec.geometry;
    for (uint32_t block = 0; block < g.num_blocks; ++block) {
      for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
        for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
          fill(owned.at(block, layer, outer), g.region_bytes(), block, layer, outer, seed);
        }
      }
    }
  }
  // Whether `block` holds what block `as` was filled with, in layers [first, end), and guards
  // elsewhere.
  static bool holds(const Owned& owned, uint32_t block, uint32_t as, uint64_t seed,
                    uint32_t first = 0, uint32_t end = UINT32_MAX) {
    const Geometry& g = owned.spec.geometry;
    for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
      for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
        const std::byte* at = owned.at(block, layer, outer);
        if (layer >= first && layer < end) {
          if (first_difference(at, g.region_bytes(), as, layer, outer, seed) != g.region_bytes()) {
            return false;
          }
        } else {
          for (uint64_t i = 0; i < g.region_bytes(); ++i) {
            if (at[i] != kGuard) return false;
          }
        }
      }
    }
    return true;
  }

  static Result<Completion> wait(Result<TransferCompleteNotification> request) {
    if (!request.ok()) return request.status();
    return request->wait(deadline_in_ms(kWaitMs));
  }

  EngineHost engine_;
};

TEST_F(ClientEngine, AttachesTransfersAndDetaches) {
  {
    Client client = attach("solo");
    EXPECT_EQ(client.engine_state().life, EngineLife::kRunning);
    EXPECT_EQ(client.engine_state().attached, 1u);
    Owned from = make(client, LayoutKind::kFullyContiguous);
    Owned to = make(client, LayoutKind::kLayerSeparateBlockSecond);
    fill_all(from, 7);
    const std::vector<BlockId> source = {6, 0, 3};
    const std::vector<BlockId> destination = {1, 7, 2};
    Result<Completion> completion =
        wait(client.execute_local_transfer(from.layout, to.layout, source, destination));
    ASSERT_TRUE(completion.ok()) << completion.status().to_string();
    EXPECT_TRUE(completion->ok()) << completion->to_string();
    EXPECT_EQ(completion->blocks_ok, 3u);
    EXPECT_EQ(completion->bytes, 3 * small().block_bytes());
    EXPECT_EQ(completion->transport, TransportKind::kMemory);
    EXPECT_LE(completion->submit_ns, completion->end_ns);
    for (size_t i = 0; i < source.size(); ++i) EXPECT_TRUE(holds(to, destination[i], source[i], 7));
    EXPECT_TRUE(holds(to, 0, 0, 7, 9, 9)) << "an untouched block keeps its guards";
  }
  attach("solo");  // the name is free again
}

TEST_F(ClientEngine, EveryPairOfLayoutKindsWorksAlsoForSomeLayersOnly) {
  Client client = attach("solo");
  constexpr LayoutKind kKinds[] = {
      LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
      LayoutKind::kLayerSeparateBlockSecond, LayoutKind::kDescriptorList};
  const std::vector<BlockId> source = {0, 1, 2, 5};
  const std::vector<BlockId> destination = {4, 5, 6, 0};
  for (const LayoutKind from_kind : kKinds) {
    Owned from = make(client, from_kind);
    fill_all(from, 3);
    for (const LayoutKind to_kind : kKinds) {
      for (const bool some : {false, true}) {
        const bool lists = from_kind == LayoutKind::kDescriptorList && from_kind == to_kind;
        Owned to = make(client, to_kind);
        TransferOptions options;
        if (some) options.layer_begin = 1;
        if (some) options.layer_end = 3;
        Result<Completion> completion = wait(
            client.execute_local_transfer(from.layout, to.layout, source, destination, options));
        if (some && lists) {
          EXPECT_EQ(completion.code(), Code::kUnsupported);
          continue;
        }
        ASSERT_TRUE(completion.ok()) << completion.status().to_string();
        EXPECT_TRUE(completion->ok()) << completion->to_string();
        for (size_t i = 0; i < source.size(); ++i) {
          EXPECT_TRUE(holds(to, destination[i], source[i], 3, some ? 1 : 0, 3));
        }
      }
    }
  }
}

TEST_F(ClientEngine, ARequestOfManyRecordsIsMergedIntoOneCompletion) {
  AttachOptions options;
  options.channel.submission_slots = 16;  // 5 slots a record: 29 pairs
  Client client = attach("solo", 0, options);
  Geometry g = small();
  g.num_blocks = 2000;
  g.inner_dim = 2;
  Owned from = make(client, LayoutKind::kFullyContiguous, g);
  Owned to = make(client, LayoutKind::kLayerSeparateBlockFirst, g);
  fill_all(from, 5);
  std::vector<BlockId> source;
  std::vector<BlockId> destination;
  for (uint32_t i = 0; i < g.num_blocks; ++i) {
    source.push_back(i);
    destination.push_back(g.num_blocks - 1 - i);
  }
  Result<Completion> completion =
      wait(client.execute_local_transfer(from.layout, to.layout, source, destination));
  ASSERT_TRUE(completion.ok()) << completion.status().to_string();
  EXPECT_TRUE(completion->ok()) << completion->to_string();
  EXPECT_EQ(completion->blocks_ok, g.num_blocks);
  for (uint32_t i = 0; i < g.num_blocks; ++i)
    ASSERT_TRUE(holds(to, destination[i], source[i], 5)) << i;
}

TEST_F(ClientEngine, TwoClientsShareAPublishedLayout) {
  Client prefill = attach("prefill", 1);
  Client decode = attach("decode");
  Owned from = make(prefill, LayoutKind::kFullyContiguous);
  Owned to = make(decode, LayoutKind::kLayerSeparateBlockFirst);
  fill_all(from, 11);
  EXPECT_EQ(decode.find_layout("prefill", 1, Tier::kG2).code(), Code::kUnknownInstance);
  ASSERT_TRUE(prefill.publish(from.layout, Tier::kG2, Rights::kRead, {"decode"}).ok());
  Result<FoundLayout> found = decode.find_layout("prefill", 1, Tier::kG2);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->geometry.num_layers, 3u);
  EXPECT_EQ(found->rights, Rights::kRead);
  EXPECT_EQ(found->part_bytes, std::vector<uint64_t>{small().block_bytes() * 8});
  const std::vector<BlockId> blocks = {2, 3};
  Result<Completion> pulled =
      wait(decode.execute_local_transfer(found->handle, to.layout, blocks, blocks));
  ASSERT_TRUE(pulled.ok() && pulled->ok());
  EXPECT_TRUE(holds(to, 2, 2, 11));
  EXPECT_TRUE(holds(to, 3, 3, 11));
  EXPECT_EQ(decode.execute_local_transfer(to.layout, found->handle, blocks, blocks).code(),
            Code::kNotPermitted);
  EXPECT_EQ(attach("other").find_layout("prefill", 1, Tier::kG2).code(), Code::kNotPermitted);

  // Taken back: what was found is stale, and stays so until it is found again.
  ASSERT_TRUE(prefill.unpublish(from.layout).ok());
  Result<Completion> stale =
      wait(decode.execute_local_transfer(found->handle, to.layout, blocks, blocks));
  EXPECT_EQ(stale.ok() ? stale->status : stale.code(), Code::kStale);
  EXPECT_TRUE(decode.free_layout(found->handle).ok()) << "its last trace can still be freed";
  ASSERT_TRUE(prefill.publish(from.layout, Tier::kG2, Rights::kReadWrite).ok());
  Result<FoundLayout> again = decode.find_layout("prefill", 1, Tier::kG2);
  ASSERT_TRUE(again.ok());
  fill_all(to, 12);
  EXPECT_TRUE(wait(decode.execute_local_transfer(to.layout, again->handle, blocks, blocks))->ok());
  EXPECT_TRUE(holds(from, 3, 3, 12));
}

TEST_F(ClientEngine, AFindWaitsUntilTheLayoutIsPublished) {
  Client prefill = attach("prefill");
  Client decode = attach("decode");
  Owned from = make(prefill, LayoutKind::kFullyContiguous);
  Result<FoundLayout> found = Status(Code::kInternal, "not yet");
  std::thread waiting(
      [&] { found = decode.find_layout("prefill", 0, Tier::kG1, deadline_in_ms(kWaitMs)); });
  // Other calls of the same client do not wait for that one.
  EXPECT_TRUE(decode.create_region(4096).ok());
  EXPECT_TRUE(prefill.publish(from.layout, Tier::kG1).ok());
  waiting.join();
  EXPECT_TRUE(found.ok()) << found.status().to_string();
}

TEST_F(ClientEngine, SubmitAnswersForEveryOpAndListsAllFailures) {
  Client client = attach("solo");
  Result<Region> region = client.create_region(1 << 20);
  Owned layout = make(client, LayoutKind::kDescriptorList);
  ASSERT_TRUE(region.ok());
  std::memset(region->data, 5, 1000);
  const RangeOp good{region->handle, 0, region->handle, 500'000, 1000};
  const RangeOp into_layout = RangeOp::write(region->handle, 0, layout.layout, 100, 900);
  ASSERT_TRUE(client.submit(std::vector<RangeOp>{good, into_layout}).ok());
  EXPECT_EQ(std::memcmp(region->data, region->data + 500'000, 1000), 0);
  EXPECT_TRUE(client.submit({}).ok());

  // What the library sees fails the batch before anything is accepted.
  std::memset(region->data + 500'000, 0, 1000);
  const RangeOp outside{region->handle, 0, region->handle, (1 << 20) - 10, 11};
  const RangeOp empty{region->handle, 0, region->handle, 10, 0};
  Status refused = client.submit(std::vector<RangeOp>{outside, good, empty});
  EXPECT_EQ(refused.code(), Code::kOutOfRange);
  EXPECT_NE(refused.message().find("op 0: OUT_OF_RANGE"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("op 2: INVALID_ARGUMENT"), std::string::npos)
      << refused.message();
  EXPECT_EQ(refused.message().find("op 1"), std::string::npos) << refused.message();
  EXPECT_EQ(region->data[500'000], std::byte{0});

  // What only the engine sees, here the same backing under a second registration.
  Region twice = *client.create_region(4096);
  const RangeOp fine{region->handle, 0, twice.handle, 0, 10};
  shm::UniqueFd memory = sealed_memory(8192);
  Region one = *client.register_region(memory.get(), 0, 8192, true);
  Region two = *client.register_region(memory.get(), 4096, 4096);
  const RangeOp overlapping{one.handle, 4000, two.handle, 0, 200};
  Status overlap = client.submit(std::vector<RangeOp>{fine, overlapping, fine});
  EXPECT_EQ(overlap.code(), Code::kOverlap) << overlap.message();
  EXPECT_NE(overlap.message().find("op 1: OVERLAP"), std::string::npos) << overlap.message();
}

TEST_F(ClientEngine, ManyOpsThanTheRingHoldsAreAllAnswered) {
  AttachOptions options;
  options.channel.submission_slots = 8;
  Client client = attach("solo", 0, options);
  Region region = *client.create_region(1 << 20);
  std::vector<RangeOp> ops;
  for (uint64_t i = 0; i < 1000; ++i) {
    std::memset(region.data + i * 16, static_cast<int>(i), 16);
    ops.push_back({region.handle, i * 16, region.handle, 500'000 + i * 16, 16});
  }
  ASSERT_TRUE(client.submit(ops).ok());
  EXPECT_EQ(std::memcmp(region.data, region.data + 500'000, 16'000), 0);
}

TEST_F(ClientEngine, NotificationsTravelBetweenClients) {
  Client prefill = attach("prefill", 2);
  Client decode = attach("decode");
  EXPECT_EQ(prefill.notify("nobody", 0, "hello").code(), Code::kUnknownInstance);
  ASSERT_TRUE(wait(prefill.notify("decode", 0, "hello"))->ok());
  Result<std::vector<Notification>> got = decode.wait_notifications(deadline_in_ms(kWaitMs));
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->size(), 1u);
  EXPECT_EQ(got->front().instance, "prefill");
  EXPECT_EQ(got->front().rank, 2u);
  EXPECT_EQ(got->front().bytes, "hello");

  // With a transfer, to the owner of the other side, behind the data.
  Owned from = make(prefill, LayoutKind::kFullyContiguous);
  Owned to = make(decode, LayoutKind::kFullyContiguous);
  fill_all(from, 4);
  ASSERT_TRUE(decode.publish(to.layout, Tier::kG2, Rights::kReadWrite).ok());
  FoundLayout found = *prefill.find_layout("decode", 0, Tier::kG2, deadline_in_ms(kWaitMs));
  const std::vector<BlockId> blocks = {1};
  TransferOptions options;
  options.notification = "block 1 is there";
  Result<TransferCompleteNotification> push =
      prefill.execute_local_transfer(from.layout, found.handle, blocks, blocks, options);
  ASSERT_TRUE(push.ok());
  got = decode.wait_notifications(deadline_in_ms(kWaitMs));
  ASSERT_TRUE(got.ok() && got->size() == 1);
  EXPECT_EQ(got->front().bytes, "block 1 is there");
  EXPECT_TRUE(holds(to, 1, 1, 4));
  EXPECT_TRUE(wait(push)->ok());

  // A receiver that does not read: its box is full, and nothing is lost silently.
  Code last = Code::kOk;
  for (int i = 0; i < 1000 && last == Code::kOk; ++i) {
    last = wait(prefill.notify("decode", 0, "flood"))->status;
  }
  EXPECT_EQ(last, Code::kBoxFull);
}

TEST_F(ClientEngine, EachThreadHasAChannelOfItsOwnAndLeavesItToTheNext) {
  Client client = attach("solo");
  Owned from = make(client, LayoutKind::kFullyContiguous);
  Owned to = make(client, LayoutKind::kFullyContiguous);
  fill_all(from, 1);
  std::atomic<uint32_t> failures{0};
  // More threads in all than channels_per_client allows, four at a time.
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::vector<BlockId> source = {t};
        const std::vector<BlockId> destination = {t + 4};
        for (int i = 0; i < 20; ++i) {
          Result<Completion> done =
              wait(client.execute_local_transfer(from.layout, to.layout, source, destination));
          if (!done.ok() || !done->ok()) ++failures;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(failures.load(), 0u);
  for (uint32_t t = 0; t < 4; ++t) EXPECT_TRUE(holds(to, t + 4, t, 1));
}

TEST_F(ClientEngine, AChannelWithADescriptorWakesAnEventLoop) {
  Client client = attach("solo");
  ChannelOptions options;
  options.descriptor = true;
  Channel channel = *client.open_channel(options);
  Region region = *client.create_region(1 << 20);
  for (int i = 0; i < 50; ++i) {
    Result<TransferCompleteNotification> request =
        channel.copy_range({region.handle, 0, region.handle, 500'000, 400'000});
    ASSERT_TRUE(request.ok());
    while (!request->poll()) {
      Result<int> fd = request->descriptor();
      ASSERT_TRUE(fd.ok()) << fd.status().to_string();
      pollfd one{*fd, POLLIN, 0};
      ASSERT_EQ(poll(&one, 1, static_cast<int>(kWaitMs)), 1);
    }
    EXPECT_TRUE(request->wait(0)->ok());
  }
}

TEST_F(ClientEngine, BadInputIsRefusedWithTheRightCode) {
  Client client = attach("solo");
  Owned a = make(client, LayoutKind::kFullyContiguous);
  Owned b = make(client, LayoutKind::kFullyContiguous);
  const std::vector<BlockId> one = {0};
  EXPECT_EQ(client.execute_local_transfer({12345}, b.layout, one, one).code(), Code::kStale);
  EXPECT_EQ(client.execute_local_transfer({a.region.handle.value}, b.layout, one, one).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(client.execute_local_transfer(a.layout, a.layout, one, one).code(), Code::kOverlap);
  // Two layouts over one region: only the engine knows.
  LayoutHandle twin = *client.register_layout(a.spec);
  Result<Completion> overlap = wait(client.execute_local_transfer(a.layout, twin, one, one));
  EXPECT_EQ(overlap->status, Code::kOverlap);

  EXPECT_EQ(client.free_region(a.region.handle).code(), Code::kNotPermitted);
  EXPECT_TRUE(client.free_layout(twin).ok());
  EXPECT_TRUE(client.free_layout(a.layout).ok());
  EXPECT_EQ(client.free_layout(a.layout).code(), Code::kStale);
  EXPECT_TRUE(client.free_region(a.region.handle).ok());
  EXPECT_EQ(client.free_region(a.region.handle).code(), Code::kStale);
  EXPECT_EQ(client.register_layout(a.spec).code(), Code::kStale);

  EXPECT_EQ(client.create_region(0).code(), Code::kInvalidArgument);
  shm::UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(client.register_region(unsealed.get(), 0, 4096).code(), Code::kInvalidArgument);
  EXPECT_EQ(client.register_region(-1, 0, 4096).code(), Code::kInvalidArgument);

  AttachOptions again;
  again.instance = "solo";
  again.run_dir = engine_->run_dir();
  again.wait_ms = 0;
  EXPECT_EQ(Client::attach(again).code(), Code::kAlreadyExists);
  again.instance = "white space";
  EXPECT_EQ(Client::attach(again).code(), Code::kInvalidArgument);
  again.instance = "other";
  again.run_dir = engine_->run_dir() + "/nothing";
  EXPECT_EQ(Client::attach(again).code(), Code::kUnreachable);
}

TEST_F(ClientEngine, AReadOnlyDescriptorIsASourceOnly) {
  Client client = attach("solo");
  shm::UniqueFd memory = sealed_memory(1 << 20);
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  shm::UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Result<Region> region = client.register_region(read_only.get(), 0, 1 << 20, true);
  ASSERT_TRUE(region.ok()) << region.status().to_string();
  EXPECT_FALSE(region->writable);
  Region other = *client.create_region(1 << 20);
  EXPECT_TRUE(client.submit(std::vector<RangeOp>{{region->handle, 0, other.handle, 0, 100}}).ok());
  EXPECT_EQ(client.submit(std::vector<RangeOp>{{other.handle, 0, region->handle, 0, 100}}).code(),
            Code::kNotPermitted);
  LayoutHandle layout = *client.register_layout(fully_contiguous(region->handle, 0, small()));
  EXPECT_EQ(client.publish(layout, Tier::kG2, Rights::kReadWrite).code(), Code::kNotPermitted);
  EXPECT_TRUE(client.publish(layout, Tier::kG2, Rights::kRead).ok());
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
  Region other = *client.create_region(kBytes);
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
  Region region = *client.create_region(4096);
  engine_->request_drain(std::chrono::milliseconds(0), "maintenance tonight");
  std::unique_lock lock(mutex);
  const auto saw = [&](EngineLife life) {
    return std::any_of(states.begin(), states.end(),
                       [life](const EngineState& state) { return state.life == life; });
  };
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::milliseconds(kWaitMs),
                               [&] { return saw(EngineLife::kStopped); }));
  EXPECT_TRUE(saw(EngineLife::kDraining));
  EXPECT_EQ(states.back().reason, "maintenance tonight");
  lock.unlock();
  const Code code =
      client.submit(std::vector<RangeOp>{{region.handle, 0, region.handle, 100, 10}}).code();
  EXPECT_TRUE(code == Code::kDraining || code == Code::kEngineGone || code == Code::kAborted)
      << code_name(code);
}

TEST_F(ClientEngine, ACallFromTheStateCallbackIsRefusedInsteadOfWaitingForItself) {
  std::promise<Code> refused;
  Client client = attach("solo");
  client.set_state_callback([&refused, copy = client, done = false](const EngineState&) mutable {
    if (!std::exchange(done, true)) refused.set_value(copy.create_region(4096).code());
  });
  engine_->request_stop("enough");
  EXPECT_EQ(refused.get_future().get(), Code::kInvalidArgument);
  client.set_state_callback(nullptr);
}

TEST_F(ClientEngine, AWorkerTransfersBetweenTheTiersItIsBoundTo) {
  Client client = attach("worker");
  Owned g1 = make(client, LayoutKind::kLayerSeparateBlockSecond);
  Owned g2 = make(client, LayoutKind::kFullyContiguous);
  fill_all(g2, 8);
  DirectWorker worker(client);
  const std::vector<BlockId> source = {1, 2};
  const std::vector<BlockId> destination = {5, 4};
  EXPECT_EQ(worker.execute_local_transfer(Tier::kG2, Tier::kG1, source, destination, {}).code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(worker.bind(Tier::kG1, g1.layout).ok());
  ASSERT_TRUE(worker.bind(Tier::kG2, g2.layout).ok());
  EXPECT_EQ(worker.bind(Tier::kG2, g1.layout).code(), Code::kAlreadyExists);
  Result<Completion> done =
      wait(worker.execute_local_transfer(Tier::kG2, Tier::kG1, source, destination, {}));
  ASSERT_TRUE(done.ok() && done->ok());
  EXPECT_TRUE(holds(g1, 5, 1, 8));
  EXPECT_TRUE(holds(g1, 4, 2, 8));
  EXPECT_EQ(worker.execute_local_transfer(Tier::kG4, Tier::kG1, source, destination, {}).code(),
            Code::kUnsupported);
  EXPECT_EQ(worker.execute_local_transfer(Tier::kG1, Tier::kG4, source, destination, {}).code(),
            Code::kUnsupported);
  const RemoteDescriptor remote = RemoteLayout{{1}, {0}};
  EXPECT_EQ(worker.execute_remote_onboard(remote, Tier::kG1, destination, {}).code(),
            Code::kUnsupported);
  EXPECT_EQ(worker.execute_remote_offload(Tier::kG1, source, remote, {}).code(),
            Code::kUnsupported);
  EXPECT_EQ(worker.connect_remote("peer", {}).code(), Code::kUnsupported);
  EXPECT_FALSE(worker.has_remote_metadata("peer"));
  EXPECT_EQ(worker
                .execute_remote_onboard_for_instance("peer", Tier::kG2, source, Tier::kG1,
                                                     destination, {})
                .code(),
            Code::kUnsupported);
}

}  // namespace
}  // namespace wherry::test
