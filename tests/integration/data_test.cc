// What arrives: every pair of layouts, byte by byte, and that nothing else is touched.
#include <sys/mman.h>

#include "tests/support/client_world.h"

namespace wherry::test {
namespace {

struct LayerRange {
  uint32_t first;
  uint32_t end;  // 0, 0: all, as in the options
};

class Data : public ClientWorld {
 protected:
  explicit Data(const std::function<void(engine::Config*)>& change = {}) : ClientWorld(change) {}

  // Reads or writes blocks between a layout of `owner_` that is published, and one of `finder_`.
  void check_pair(LayoutKind from_kind, LayoutKind to_kind, bool pull, const Geometry& geometry,
                  LayerRange layers) {
    Client& source_client = pull ? owner_ : finder_;
    Client& destination_client = pull ? finder_ : owner_;
    const Placed from = place(source_client, from_kind, geometry);
    const Placed to = place(destination_client, to_kind, geometry);
    from.fill_all(++seed_);
    const Placed& published = pull ? from : to;
    ASSERT_TRUE(owner_
                    .publish(published.layout, Tier::kG2, pull ? Rights::kRead : Rights::kReadWrite,
                             {"finder"})
                    .ok());
    Result<FoundLayout> found = finder_.find_layout("owner", 0, Tier::kG2, deadline_in_ms(kHangMs));
    ASSERT_TRUE(found.ok()) << found.status().to_string();

    // A run of neighbours, two that are neighbours in the source only, and a step backwards.
    const std::vector<BlockId> source = {1, 2, 3, 5, 6, 0};
    const std::vector<BlockId> destination = {2, 3, 4, 0, 7, 6};
    TransferOptions options;
    options.layer_begin = layers.first;
    options.layer_end = layers.end;
    const bool all = layers.end == 0;
    Image after(to);
    Image untouched(from);
    Result<Completion> done = wait(finder_.execute_local_transfer(
        pull ? found->handle : from.layout, pull ? to.layout : found->handle, source, destination,
        options));
    const bool lists =
        from_kind == LayoutKind::kDescriptorList && to_kind == LayoutKind::kDescriptorList;
    if (lists && !all) {
      EXPECT_EQ(done.code(), Code::kUnsupported);
    } else {
      for (size_t i = 0; i < source.size(); ++i) {
        after.block(destination[i], source[i], seed_, layers.first, all ? UINT32_MAX : layers.end);
      }
      ASSERT_TRUE(done.ok()) << done.status().to_string();
      EXPECT_TRUE(done->ok()) << done->to_string();
      EXPECT_EQ(done->blocks_ok, source.size());
      const uint64_t moved = all ? geometry.num_layers : layers.end - layers.first;
      EXPECT_EQ(done->bytes, source.size() * moved * geometry.layer_bytes());
      EXPECT_EQ(done->transport, TransportKind::kMemory);
    }
    EXPECT_TRUE(after.holds());
    EXPECT_TRUE(untouched.holds());
    EXPECT_TRUE(finder_.free_layout(found->handle).ok());
    free(source_client, from);
    free(destination_client, to);
  }

  static void free(Client& client, const Placed& placed) {
    EXPECT_TRUE(client.free_layout(placed.layout).ok());
    EXPECT_TRUE(client.free_region(placed.region.handle).ok());
  }

  void check_all_pairs(const Geometry& geometry, const std::vector<LayerRange>& ranges) {
    for (const LayoutKind from : kAllKinds) {
      for (const LayoutKind to : kAllKinds) {
        for (const bool pull : {true, false}) {
          for (const LayerRange& layers : ranges) {
            SCOPED_TRACE(std::string(layout_kind_name(from)) + " to " +
                         std::string(layout_kind_name(to)) + (pull ? ", pulled" : ", pushed") +
                         ", layers " + std::to_string(layers.first) + ".." +
                         std::to_string(layers.end));
            check_pair(from, to, pull, geometry, layers);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }

  uint64_t seed_ = 0;
  Client owner_ = attach("owner");
  Client finder_ = attach("finder");
};

TEST_F(Data, EveryPairOfKindsIsPulledAndPushedWholeAndByLayers) {
  check_all_pairs(small_geometry(), {{0, 0}, {0, 1}, {1, 2}, {2, 3}, {0, 3}, {1, 3}});
}

TEST_F(Data, EveryPairWorksWithOneOuterAndManyLayers) {
  Geometry g = small_geometry();
  g.outer_dim = 1;
  g.num_layers = 61;
  g.page_size = 16;
  g.inner_dim = 16;
  g.dtype = DType::kBFloat16;
  check_all_pairs(g, {{0, 0}, {17, 61}});
}

TEST_F(Data, EveryPairWorksWithPiecesOfOneByteAndOneLayer) {
  Geometry g = small_geometry();
  g.num_layers = 1;
  g.page_size = 1;
  g.inner_dim = 1;
  check_all_pairs(g, {{0, 0}, {0, 1}});
}

TEST_F(Data, EveryPairWorksWithPiecesLargerThanATurnCopies) {
  Geometry g = small_geometry();
  g.num_layers = 2;
  g.page_size = 16;
  g.inner_dim = 8191;
  g.dtype = DType::kBFloat16;
  check_all_pairs(g, {{0, 0}, {1, 2}});
}

TEST_F(Data, LayersInRegionsOfTheirOwnAndAListInShuffledOrder) {
  Geometry g = small_geometry();
  std::vector<LayoutPart> layers;
  std::vector<Region> regions;
  const uint64_t layer_bytes = g.layer_bytes() * g.num_blocks;
  for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
    regions.push_back(make_region(finder_, layer_bytes + 100));
    std::memset(regions.back().data, static_cast<int>(kGuard), regions.back().bytes);
    layers.push_back({regions.back().handle, 100, 0});
  }
  const LayoutHandle to = *finder_.register_layout(layer_separate(layers, g));

  Region pool = make_region(finder_, 2 * g.num_blocks * g.block_bytes());
  std::vector<LayoutPart> entries;
  for (uint32_t block = 0; block < g.num_blocks; ++block) {
    const uint64_t place = (block * 5 + 3) % g.num_blocks;  // each once
    entries.push_back({pool.handle, (2 * place + 1) * g.block_bytes(), 0});
  }
  const LayoutSpec list = descriptor_list(entries, g);
  const LayoutHandle from = *finder_.register_layout(list);
  for (uint32_t block = 0; block < g.num_blocks; ++block) {
    for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
      for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
        fill(pool.data + list.parts[block].offset + layer * g.layer_bytes() +
                 outer * g.region_bytes(),
             g.region_bytes(), block, layer, outer, 3);
      }
    }
  }
  const std::vector<BlockId> source = ids(0, 8);
  const std::vector<BlockId> destination = {7, 6, 5, 4, 3, 2, 1, 0};
  Result<Completion> done = wait(finder_.execute_local_transfer(from, to, source, destination));
  ASSERT_TRUE(done.ok() && done->ok());
  for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
    for (uint32_t block = 0; block < g.num_blocks; ++block) {
      for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
        const std::byte* at =
            regions[layer].data + 100 + block * g.layer_bytes() + outer * g.region_bytes();
        EXPECT_EQ(first_difference(at, g.region_bytes(), 7 - block, layer, outer, 3),
                  g.region_bytes());
      }
    }
    for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(regions[layer].data[i], kGuard);
    EXPECT_EQ(regions[layer].data[100 + layer_bytes], kGuard);
  }
}

TEST_F(Data, BlocksOfOneLayoutAreCopiedWithinIt) {
  const Placed placed = place(finder_, LayoutKind::kLayerSeparateBlockSecond);
  placed.fill_all(4);
  Image after(placed);
  after.block(6, 1, 4).block(7, 0, 4);
  const std::vector<BlockId> source = {1, 0};
  const std::vector<BlockId> destination = {6, 7};
  Result<Completion> done =
      wait(finder_.execute_local_transfer(placed.layout, placed.layout, source, destination));
  ASSERT_TRUE(done.ok() && done->ok());
  EXPECT_TRUE(after.holds());
}

TEST_F(Data, ARawListIsCopiedEntryByEntry) {
  Region region = make_region(finder_, 1 << 16);
  for (uint64_t i = 0; i < region.bytes; ++i) region.data[i] = std::byte(mix(i));
  const std::vector<std::byte> before(region.data, region.data + region.bytes);
  const LayoutHandle from = *finder_.register_layout(
      raw_list({{region.handle, 0, 1}, {region.handle, 100, 4096}, {region.handle, 5000, 333}}));
  const LayoutHandle to = *finder_.register_layout(raw_list(
      {{region.handle, 40'000, 333}, {region.handle, 50'001, 1}, {region.handle, 30'000, 4096}}));
  const std::vector<BlockId> source = {2, 0, 1};
  const std::vector<BlockId> destination = {0, 1, 2};
  Result<Completion> done = wait(finder_.execute_local_transfer(from, to, source, destination));
  ASSERT_TRUE(done.ok() && done->ok());
  std::vector<std::byte> wanted = before;
  std::copy_n(before.begin() + 5000, 333, wanted.begin() + 40'000);
  std::copy_n(before.begin(), 1, wanted.begin() + 50'001);
  std::copy_n(before.begin() + 100, 4096, wanted.begin() + 30'000);
  EXPECT_EQ(std::memcmp(wanted.data(), region.data, wanted.size()), 0);
}

TEST_F(Data, AdoptedMemoryIsALayoutLikeAnyOther) {
  Geometry g = small_geometry(32);
  const uint64_t bytes = 1 << 20;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, static_cast<int>(kGuard), bytes);
  Placed to;
  to.region = *finder_.adopt_region(memory, bytes, {true});
  EXPECT_EQ(to.region.data, memory);
  to.spec = fully_contiguous(to.region.handle, 4097, g);
  to.layout = *finder_.register_layout(to.spec);
  const Placed from = place(finder_, LayoutKind::kLayerSeparateBlockFirst, g);
  from.fill_all(5);
  Image after(to);
  after.block(31, 0, 5).block(0, 31, 5);
  const std::vector<BlockId> source = {0, 31};
  const std::vector<BlockId> destination = {31, 0};
  Result<Completion> done =
      wait(finder_.execute_local_transfer(from.layout, to.layout, source, destination));
  ASSERT_TRUE(done.ok() && done->ok());
  EXPECT_TRUE(after.holds());
  EXPECT_TRUE(finder_.free_layout(to.layout).ok());
  EXPECT_TRUE(finder_.free_region(to.region.handle).ok());
  munmap(memory, bytes);
}

TEST_F(Data, HugePagesCarryALayout) {
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  Result<Region> region = finder_.create_region(kHuge, kHuge);
  if (!region.ok()) {
    EXPECT_TRUE(says(region.status(), Code::kNoResources, {"huge"}));
    GTEST_SKIP() << region.status().to_string();
  }
  Placed to;
  to.region = *region;
  std::memset(to.region.data, static_cast<int>(kGuard), to.region.bytes);
  to.spec = fully_contiguous(to.region.handle, 1001, small_geometry());
  to.layout = *finder_.register_layout(to.spec);
  const Placed from = place(finder_, LayoutKind::kDescriptorList);
  from.fill_all(6);
  Image after(to);
  after.block(3, 4, 6);
  const std::vector<BlockId> source = {4};
  const std::vector<BlockId> destination = {3};
  Result<Completion> done =
      wait(finder_.execute_local_transfer(from.layout, to.layout, source, destination));
  ASSERT_TRUE(done.ok() && done->ok());
  EXPECT_TRUE(after.holds());
}

// Tiny blocks, in an order that gives no runs.
class ManyBlocks : public Data {
 protected:
  static Geometry tiny(uint32_t blocks) {
    Geometry g = small_geometry(blocks);
    g.num_layers = 2;
    g.page_size = 1;
    g.inner_dim = 3;
    return g;
  }
  static std::vector<BlockId> scattered(uint32_t blocks) {
    std::vector<BlockId> list;
    for (uint32_t i = 0; i < blocks; ++i) {
      list.push_back(static_cast<BlockId>(uint64_t{i} * 7919 % blocks));
    }
    return list;
  }
  static Client small_rings(ManyBlocks& world, const std::string& instance) {
    AttachOptions options;
    options.channel.submission_slots = 64;  // 17 slots a record: 113 pairs
    return world.attach(instance, 0, options);
  }
  static constexpr uint32_t kPairsPerRecord = 113;
};

TEST_F(ManyBlocks, TwentyThousandBlocksGoThroughARingOf64Slots) {
  Client client = small_rings(*this, "small");
  constexpr uint32_t kBlocks = 20'000;
  const Placed from = place(client, LayoutKind::kFullyContiguous, tiny(kBlocks));
  const Placed to = place(client, LayoutKind::kLayerSeparateBlockSecond, tiny(kBlocks));
  from.fill_all(8);
  const std::vector<BlockId> source = ids(0, kBlocks);
  const std::vector<BlockId> destination = scattered(kBlocks);
  Image after(to);
  for (uint32_t i = 0; i < kBlocks; ++i) after.block(destination[i], source[i], 8);
  Result<Completion> done =
      wait(client.execute_local_transfer(from.layout, to.layout, source, destination));
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_TRUE(done->ok()) << done->to_string();
  EXPECT_EQ(done->blocks_ok, kBlocks);
  EXPECT_EQ(done->bytes, kBlocks * tiny(kBlocks).block_bytes());
  EXPECT_TRUE(done->failed.empty());
  EXPECT_TRUE(after.holds());
}

TEST_F(ManyBlocks, TheNotificationOfASplitRequestArrivesBehindAllOfItsData) {
  Client client = small_rings(*this, "small");
  constexpr uint32_t kBlocks = 2'000;
  const Placed from = place(client, LayoutKind::kFullyContiguous, tiny(kBlocks));
  const Placed to = place(owner_, LayoutKind::kLayerSeparateBlockFirst, tiny(kBlocks));
  from.fill_all(9);
  ASSERT_TRUE(owner_.publish(to.layout, Tier::kG1, Rights::kReadWrite).ok());
  const FoundLayout found = *client.find_layout("owner", 0, Tier::kG1);
  Image after(to);
  for (uint32_t i = 0; i < kBlocks; ++i) after.block(i, i, 9);
  TransferOptions options;
  options.notification = "all of it";
  Result<TransferCompleteNotification> push = client.execute_local_transfer(
      from.layout, found.handle, ids(0, kBlocks), ids(0, kBlocks), options);
  ASSERT_TRUE(push.ok()) << push.status().to_string();
  std::vector<Notification> got;
  while (got.empty()) {
    push->poll();
    got = *owner_.wait_notifications(deadline_in_ms(1));
  }
  EXPECT_EQ(got.front().bytes, "all of it");
  EXPECT_TRUE(after.holds());
  EXPECT_TRUE(wait(push)->ok());
}

TEST_F(ManyBlocks, RecordsThatFailNameTheirBlocksAndTheOthersArrive) {
  Client client = small_rings(*this, "small");
  constexpr uint32_t kEntries = 20'000;
  constexpr uint32_t kBytes = 16;
  Region region = make_region(client, 2 * kEntries * kBytes);
  for (uint64_t i = 0; i < region.bytes / 2; ++i) region.data[i] = std::byte(mix(i));
  std::memset(region.data + region.bytes / 2, static_cast<int>(kGuard), region.bytes / 2);
  // Entries whose lengths differ from their sources': only the engine sees that.
  const std::vector<uint32_t> odd = {5, kPairsPerRecord * 3 + 7, kEntries - 1};
  std::vector<LayoutPart> sources;
  std::vector<LayoutPart> destinations;
  for (uint32_t i = 0; i < kEntries; ++i) {
    sources.push_back({region.handle, uint64_t{i} * kBytes, kBytes});
    const bool short_one = std::find(odd.begin(), odd.end(), i) != odd.end();
    destinations.push_back(
        {region.handle, region.bytes / 2 + uint64_t{i} * kBytes, short_one ? kBytes - 1 : kBytes});
  }
  const LayoutHandle from = *client.register_layout(raw_list(sources));
  const LayoutHandle to = *client.register_layout(raw_list(destinations));
  Result<Completion> done =
      wait(client.execute_local_transfer(from, to, ids(0, kEntries), ids(0, kEntries)));
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_EQ(done->status, Code::kIncompatibleLayout) << done->to_string();
  std::vector<uint32_t> wanted;
  std::vector<bool> failed(kEntries);
  for (const uint32_t index : odd) {
    const uint32_t first = index / kPairsPerRecord * kPairsPerRecord;
    for (uint32_t i = first; i < std::min(first + kPairsPerRecord, kEntries); ++i) {
      wanted.push_back(i);
      failed[i] = true;
    }
  }
  std::vector<uint32_t> got;
  for (const FailedBlock& block : done->failed) {
    got.push_back(block.index);
    EXPECT_EQ(block.code, Code::kIncompatibleLayout);
  }
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(done->blocks_failed, wanted.size());
  EXPECT_EQ(done->blocks_ok, kEntries - wanted.size());
  for (uint32_t i = 0; i < kEntries; ++i) {
    const std::byte* at = region.data + region.bytes / 2 + i * kBytes;
    if (failed[i]) {
      EXPECT_EQ(std::count(at, at + kBytes, kGuard), kBytes) << i;
    } else {
      EXPECT_EQ(std::memcmp(at, region.data + i * kBytes, kBytes), 0) << i;
    }
  }
}

TEST_F(ManyBlocks, HalfAMillionBlocksInOneRequest) {
  constexpr uint32_t kBlocks = 500'000;
  Geometry g = tiny(kBlocks);
  g.num_layers = 1;
  g.outer_dim = 1;
  const Placed from = place(finder_, LayoutKind::kLayerSeparateBlockFirst, g);
  const Placed to = place(finder_, LayoutKind::kFullyContiguous, g);
  from.fill_all(10);
  Image after(to);
  const std::vector<BlockId> destination = scattered(kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) after.block(destination[i], i, 10);
  Result<Completion> done =
      wait(finder_.execute_local_transfer(from.layout, to.layout, ids(0, kBlocks), destination));
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_TRUE(done->ok()) << done->to_string();
  EXPECT_TRUE(after.holds());
}

}  // namespace
}  // namespace wherry::test
