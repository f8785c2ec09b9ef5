// Block transfers through a poller: every pair of layout kinds, layer ranges, merging, and
// refusals.
#include <cstring>

#include "tests/support/pattern.h"
#include "tests/support/poller_world.h"

namespace wherry::test {
namespace {

using engine::kRightRead;
using engine::kRightWrite;

constexpr uint64_t kSourceSeed = 11;
constexpr LayoutKind kKinds[] = {LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
                                 LayoutKind::kLayerSeparateBlockSecond,
                                 LayoutKind::kDescriptorList};

class Transfer : public PollerWorld {
 protected:
  std::shared_ptr<engine::SessionShared> session_ = new_session();
  engine::SessionShared* self_ = session_.get();
  RawChannel* channel_ = channel(self_);

  Code outcome(uint64_t source, uint64_t destination, const std::vector<shm::BlockPair>& pairs,
               shm::SubmitHead head = {}) {
    channel_->transfer(source, destination, pairs, head);
    return completion(channel_).code();
  }
  uint64_t make(LayoutKind kind, uint32_t blocks = 8) {
    return layout_in_new_memory(self_, small_geometry(kind, blocks));
  }
};

TEST_F(Transfer, EveryPairOfLayoutKindsMovesTheNamedBlocksAndNothingElse) {
  for (LayoutKind from : kKinds) {
    for (LayoutKind to : kKinds) {
      SCOPED_TRACE(std::string(layout_kind_name(from)) + " to " +
                   std::string(layout_kind_name(to)));
      const uint64_t source = make(from, 9);
      const uint64_t destination = make(to, 7);
      fill_layout(self_, source, kSourceSeed);
      // Scattered ids first, then neighbours in the same order, then neighbours in reverse.
      const std::vector<shm::BlockPair> pairs = {{8, 0}, {2, 2}, {3, 3}, {4, 4}, {1, 6}};
      channel_->transfer(source, destination, pairs);
      const RawCompletion done = completion(channel_);
      EXPECT_EQ(done.code(), Code::kOk);
      EXPECT_EQ(done.head.bytes, pairs.size() * small_geometry(from).block_bytes());
      EXPECT_EQ(done.head.transport, static_cast<uint8_t>(engine::TransportId::kMemory));
      EXPECT_EQ(done.head.quiet, shm::kLocalQuiet | shm::kRemoteQuiet);
      for (const auto& pair : pairs)
        EXPECT_TRUE(holds(self_, destination, pair.destination, pair.source, kSourceSeed));
      for (uint32_t untouched : {1u, 5u}) EXPECT_TRUE(guarded(self_, destination, untouched));
      for (uint32_t block = 0; block < 9; ++block)
        EXPECT_TRUE(holds(self_, source, block, block, kSourceSeed));
      EXPECT_TRUE(gaps_are_guards());
    }
  }
}

TEST_F(Transfer, ALayerRangeMovesTheseLayersOnlyForEveryPairOfKinds) {
  for (LayoutKind from : kKinds) {
    for (LayoutKind to : kKinds) {
      if (from == LayoutKind::kDescriptorList && to == LayoutKind::kDescriptorList) continue;
      SCOPED_TRACE(std::string(layout_kind_name(from)) + " to " +
                   std::string(layout_kind_name(to)));
      const uint64_t source = make(from);
      const uint64_t destination = make(to);
      fill_layout(self_, source, kSourceSeed);
      shm::SubmitHead head{};
      head.layer_first = 1;
      head.layer_end = 3;
      EXPECT_EQ(outcome(source, destination, {{1, 4}, {2, 5}, {7, 0}}, head), Code::kOk);
      for (const auto& pair : {shm::BlockPair{1, 4}, {2, 5}, {7, 0}}) {
        EXPECT_TRUE(holds(self_, destination, pair.destination, pair.source, kSourceSeed, 1, 3));
        EXPECT_TRUE(guarded(self_, destination, pair.destination, 0, 1));
      }
      EXPECT_TRUE(guarded(self_, destination, 3));
      EXPECT_TRUE(gaps_are_guards());
    }
  }
}

TEST_F(Transfer, MoreBlocksThanFitAPieceOrASlotArriveWhole) {
  RawChannel* wide = channel(self_, {256, 0});
  const uint64_t source = make(LayoutKind::kFullyContiguous, 300);
  const uint64_t destination = make(LayoutKind::kLayerSeparateBlockSecond, 300);
  fill_layout(self_, source, kSourceSeed);
  std::vector<shm::BlockPair> pairs;
  for (uint32_t i = 0; i < 300; ++i) pairs.push_back({i, (i * 7) % 300});
  wide->transfer(source, destination, pairs);
  EXPECT_EQ(completion(wide).code(), Code::kOk);
  for (const auto& pair : pairs)
    ASSERT_TRUE(holds(self_, destination, pair.destination, pair.source, kSourceSeed));
}

TEST_F(Transfer, NeighboursOnBothSidesMoveAsOneRunInsideOneRegion) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const uint64_t destination = make(LayoutKind::kFullyContiguous);
  EXPECT_EQ(outcome(source, destination, {{0, 2}, {1, 3}, {2, 4}, {5, 5}}), Code::kOk);
  EXPECT_EQ(stats[0]->runs.get(), 2u);  // 0..2 as one, 5 alone
  const uint64_t layers = make(LayoutKind::kLayerSeparateBlockFirst);
  const uint64_t layers2 = make(LayoutKind::kLayerSeparateBlockFirst);
  EXPECT_EQ(outcome(layers, layers2, {{0, 2}, {1, 3}, {2, 4}}), Code::kOk);
  EXPECT_EQ(stats[0]->runs.get(), 2u + 3u);  // one a layer
  EXPECT_EQ(outcome(source, layers, {{0, 2}, {1, 3}}), Code::kOk);
  EXPECT_EQ(stats[0]->runs.get(), 5u + 6u);  // nothing touches: one a block and layer
}

TEST_F(Transfer, EntriesOfAListNextToEachOtherInTwoRegionsAreNotMerged) {
  const Geometry fc = small_geometry(LayoutKind::kFullyContiguous, 2);
  const Geometry list = small_geometry(LayoutKind::kDescriptorList, 2);
  engine::Mapping* one = memory(fc.block_bytes());
  engine::Mapping* two = memory(fc.block_bytes());
  const uint64_t source = layout_in_new_memory(self_, fc);
  fill_layout(self_, source, kSourceSeed);
  const uint64_t destination =
      layout(self_, list, {{one, 0, fc.block_bytes(), 0}, {two, 0, fc.block_bytes(), 0}});
  EXPECT_EQ(outcome(source, destination, {{0, 0}, {1, 1}}), Code::kOk);
  EXPECT_EQ(stats[0]->runs.get(), 2u);
  EXPECT_TRUE(holds(self_, destination, 0, 0, kSourceSeed));
  EXPECT_TRUE(holds(self_, destination, 1, 1, kSourceSeed));
}

TEST_F(Transfer, RawListsMatchLengthByLength) {
  Geometry raw;
  raw.kind = LayoutKind::kDescriptorList;
  raw.num_blocks = 3;
  engine::Mapping* a = memory(1000);
  engine::Mapping* b = memory(1000);
  for (uint64_t i = 0; i < 1000; ++i) a->base[i] = static_cast<std::byte>(i * 7);
  const uint64_t source = layout(self_, raw, {{a, 1, 100, 0}, {a, 200, 33, 0}, {a, 300, 100, 0}});
  const uint64_t destination =
      layout(self_, raw, {{b, 500, 33, 0}, {b, 600, 100, 0}, {b, 800, 100, 0}});
  EXPECT_EQ(outcome(source, destination, {{1, 0}, {0, 2}}), Code::kOk);
  EXPECT_EQ(0, std::memcmp(b->base + 500, a->base + 200, 33));
  EXPECT_EQ(0, std::memcmp(b->base + 800, a->base + 1, 100));
  channel_->transfer(source, destination, {{0, 1}, {1, 2}});
  const RawCompletion refused = completion(channel_);
  EXPECT_EQ(refused.code(), Code::kIncompatibleLayout);
  EXPECT_EQ(refused.failed.at(0).pair, 1u);
  EXPECT_EQ(b->base[600], static_cast<std::byte>(0xa5));  // nothing was started
}

TEST_F(Transfer, AnEmptyListIsDoneAtOnceWithNoBytes) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const uint64_t destination = make(LayoutKind::kLayerSeparateBlockFirst);
  channel_->transfer(source, destination, {});
  const RawCompletion done = completion(channel_);
  EXPECT_EQ(done.code(), Code::kOk);
  EXPECT_EQ(done.head.bytes, 0u);
}

TEST_F(Transfer, PairsThatDoNotFitAreRefusedBeforeAByteMoves) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const auto refuse = [&](auto change) {
    Geometry g = small_geometry(LayoutKind::kLayerSeparateBlockFirst);
    change(g);
    const uint64_t destination = layout_in_new_memory(self_, g);
    const Code code = outcome(source, destination, {{0, 0}});
    EXPECT_TRUE(guarded(self_, destination, 0));
    return code;
  };
  EXPECT_EQ(refuse([](Geometry& g) { g.num_layers = 2; }), Code::kIncompatibleLayout);
  EXPECT_EQ(refuse([](Geometry& g) { g.outer_dim = 1; }), Code::kIncompatibleLayout);
  EXPECT_EQ(refuse([](Geometry& g) { g.page_size = 4; }), Code::kIncompatibleLayout);
  EXPECT_EQ(refuse([](Geometry& g) { g.inner_dim = 8; }), Code::kIncompatibleLayout);
  EXPECT_EQ(refuse([](Geometry& g) { g.dtype = DType::kFloat16; }), Code::kIncompatibleLayout);
  EXPECT_EQ(refuse([](Geometry& g) { g.inner_order = InnerOrder::kHnd; }),
            Code::kIncompatibleLayout);
  EXPECT_EQ(refuse([](Geometry& g) { g.inner_order = InnerOrder::kUnknown; }),
            Code::kIncompatibleLayout);
  // Equal bytes a block, but page and inner swapped.
  EXPECT_EQ(refuse([](Geometry& g) { std::swap(g.page_size, g.inner_dim); }),
            Code::kIncompatibleLayout);
}

TEST_F(Transfer, IdsAndLayersOutOfRangeNameTheFirstPairToBlame) {
  const uint64_t source = make(LayoutKind::kFullyContiguous, 8);
  const uint64_t destination = make(LayoutKind::kLayerSeparateBlockFirst, 4);
  for (const std::vector<shm::BlockPair>& pairs : {std::vector<shm::BlockPair>{{0, 0}, {8, 1}},
                                                   {{0, 0}, {1, 4}},
                                                   {{0, 0}, {0xffffffff, 1}},
                                                   {{0, 0}, {0x80000000, 1}}}) {
    channel_->transfer(source, destination, pairs);
    const RawCompletion refused = completion(channel_);
    EXPECT_EQ(refused.code(), Code::kOutOfRange);
    ASSERT_EQ(refused.failed.size(), 1u);
    EXPECT_EQ(refused.failed[0].pair, 1u);
    EXPECT_TRUE(guarded(self_, destination, 0));
  }
  for (const auto& [first, end] :
       {std::pair<uint16_t, uint16_t>{1, 1}, {2, 1}, {0, 4}, {3, 4}, {65535, 65535}}) {
    shm::SubmitHead head{};
    head.layer_first = first;
    head.layer_end = end;
    EXPECT_EQ(outcome(source, destination, {{0, 0}}, head), Code::kOutOfRange)
        << first << ".." << end;
  }
}

TEST_F(Transfer, ALayerRangeBetweenTwoListsIsUnsupported) {
  const uint64_t source = make(LayoutKind::kDescriptorList);
  const uint64_t destination = make(LayoutKind::kDescriptorList);
  shm::SubmitHead head{};
  head.layer_first = 0;
  head.layer_end = 1;
  EXPECT_EQ(outcome(source, destination, {{0, 0}}, head), Code::kUnsupported);
}

TEST_F(Transfer, ADestinationTwiceIsOverlapAlsoWhenTheListIsLongAndUnsorted) {
  RawChannel* wide = channel(self_, {256, 0});
  const uint64_t source = make(LayoutKind::kFullyContiguous, 300);
  const uint64_t destination = make(LayoutKind::kFullyContiguous, 300);
  std::vector<shm::BlockPair> pairs;
  for (uint32_t i = 0; i < 200; ++i) pairs.push_back({i, 299 - i});
  pairs.push_back({250, 299 - 17});
  wide->transfer(source, destination, pairs);
  const RawCompletion refused = completion(wide);
  EXPECT_EQ(refused.code(), Code::kOverlap);
  EXPECT_EQ(refused.failed.at(0).pair, 200u);
  // A source twice is fine.
  EXPECT_EQ(outcome(source, destination, {{5, 1}, {5, 2}}), Code::kOk);
}

TEST_F(Transfer, SourceMeetingDestinationIsFoundThroughTheBackingNotTheHandle) {
  const Geometry g = small_geometry(LayoutKind::kFullyContiguous, 8);
  engine::Mapping* mapping = memory(g.part_bytes() + 4096, 77);
  // The same memory mapped a second time, elsewhere: another mapping, the same backing.
  engine::Mapping* alias = memory(g.part_bytes() + 4096, 77);
  const uint64_t first = layout(self_, g, {{mapping, 0, g.part_bytes(), 0}});
  const uint64_t second = layout(self_, g, {{alias, 0, g.part_bytes(), 0}});
  EXPECT_EQ(outcome(first, second, {{1, 2}, {2, 3}}), Code::kOverlap);
  EXPECT_EQ(outcome(first, first, {{1, 1}}), Code::kOverlap);
  EXPECT_EQ(outcome(first, second, {{1, 2}, {3, 4}}), Code::kOk);
  // Shifted by half a block: block 2 of the one meets blocks 2 and 3 of the other.
  const uint64_t half = g.block_bytes() / 2;
  const uint64_t shifted = layout(self_, g, {{alias, half, g.part_bytes(), 0}});
  EXPECT_EQ(outcome(first, shifted, {{2, 1}}), Code::kOverlap);
  EXPECT_EQ(outcome(first, shifted, {{2, 2}}), Code::kOverlap);
  EXPECT_EQ(outcome(first, shifted, {{2, 3}}), Code::kOk);
  EXPECT_EQ(outcome(first, shifted, {{4, 0}, {2, 5}}), Code::kOk);
  EXPECT_EQ(outcome(first, shifted, {{4, 0}, {2, 5}, {7, 6}}), Code::kOverlap);
  EXPECT_EQ(outcome(first, shifted, {{4, 0}, {2, 5}, {7, 3}}),
            Code::kOverlap);  // meets the first pair's source
}

TEST_F(Transfer, OverlapOfDifferentKindsOverOneRegionIsJudgedByBytes) {
  const Geometry fc = small_geometry(LayoutKind::kFullyContiguous, 4);
  Geometry ls = small_geometry(LayoutKind::kLayerSeparateBlockSecond, 4);
  engine::Mapping* mapping = memory(fc.part_bytes() * 2);
  const uint64_t contiguous = layout(self_, fc, {{mapping, 0, fc.part_bytes(), 0}});
  // Layer 0 lies over the contiguous layout's first third, the others behind its end.
  std::vector<engine::Part> parts;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    parts.push_back({mapping, layer == 0 ? 0 : fc.part_bytes() + (layer - 1) * ls.part_bytes(),
                     ls.part_bytes(), 0});
  }
  const uint64_t layered = layout(self_, ls, parts);
  EXPECT_EQ(outcome(contiguous, layered, {{0, 0}}), Code::kOverlap);
  EXPECT_EQ(outcome(contiguous, layered, {{3, 0}}), Code::kOk);
  shm::SubmitHead head{};
  head.layer_first = 1;
  head.layer_end = 3;
  EXPECT_EQ(outcome(contiguous, layered, {{0, 0}}, head), Code::kOk);
}

TEST_F(Transfer, AListWithEntriesThatShareBytesIsASourceButNoDestination) {
  Geometry raw;
  raw.kind = LayoutKind::kDescriptorList;
  raw.num_blocks = 2;
  engine::Mapping* a = memory(300);
  engine::Mapping* b = memory(300);
  const uint64_t twice = layout(self_, raw, {{a, 0, 100, 0}, {a, 50, 100, 0}});
  const uint64_t apart = layout(self_, raw, {{b, 0, 100, 0}, {b, 100, 100, 0}});
  EXPECT_EQ(outcome(twice, apart, {{0, 0}, {1, 1}}), Code::kOk);
  EXPECT_EQ(outcome(apart, twice, {{0, 0}}), Code::kOverlap);
}

TEST_F(Transfer, HandlesOfAFormerLifeAreStaleAndRightsAreKept) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const uint64_t destination = make(LayoutKind::kFullyContiguous);
  const Geometry g = small_geometry(LayoutKind::kFullyContiguous);
  engine::Mapping* mapping = memory(g.part_bytes());
  const uint64_t read_only = layout(self_, g, {{mapping, 0, g.part_bytes(), 0}}, kRightRead);
  const uint64_t write_only = layout(self_, g, {{mapping, 0, g.part_bytes(), 0}}, kRightWrite);
  EXPECT_EQ(outcome(source, read_only, {{0, 0}}), Code::kNotPermitted);
  EXPECT_EQ(outcome(write_only, destination, {{0, 0}}), Code::kNotPermitted);
  EXPECT_EQ(outcome(read_only, destination, {{0, 0}}), Code::kOk);
  EXPECT_EQ(outcome(source + (1ull << 32), destination, {{0, 0}}),
            Code::kStale);  // another generation
  EXPECT_EQ(outcome(source, 0xffffffff, {{0, 0}}), Code::kStale);
  forget(self_, source);
  EXPECT_EQ(outcome(source, destination, {{0, 0}}), Code::kStale);
}

TEST_F(Transfer, RegionsAreNoLayoutsAndUnknownTransportsAreRefused) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const uint64_t destination = make(LayoutKind::kFullyContiguous);
  const uint64_t bytes = region(self_, memory(100));
  EXPECT_EQ(outcome(bytes, destination, {{0, 0}}), Code::kInvalidArgument);
  shm::SubmitHead head{};
  head.required_transport = static_cast<uint8_t>(engine::TransportId::kTcp);
  EXPECT_EQ(outcome(source, destination, {{0, 0}}, head), Code::kNoTransport);
  head.required_transport = 200;
  EXPECT_EQ(outcome(source, destination, {{0, 0}}, head), Code::kInvalidArgument);
  head = {};
  head.flags = shm::kFlagChecksum;
  EXPECT_EQ(outcome(source, destination, {{0, 0}}, head), Code::kUnsupported);
}

TEST_F(Transfer, TheNullTransportSaysOkAndMovesNothing) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const uint64_t destination = make(LayoutKind::kFullyContiguous);
  fill_layout(self_, source, kSourceSeed);
  shm::SubmitHead head{};
  head.required_transport = static_cast<uint8_t>(engine::TransportId::kNull);
  EXPECT_EQ(outcome(source, destination, {{0, 0}, {3, 1}}, head), Code::kOk);
  EXPECT_TRUE(guarded(self_, destination, 0));
}

class Ranges : public Transfer {};

TEST_F(Ranges, BytesMoveBetweenRegionsAndAcrossThePartsOfALayout) {
  const Geometry g = small_geometry(LayoutKind::kLayerSeparateBlockFirst, 2);
  const uint64_t layered = layout_in_new_memory(self_, g);
  engine::Mapping* mapping = memory(g.part_bytes() * 3);
  const uint64_t bytes = region(self_, mapping);
  for (uint64_t i = 0; i < mapping->length; ++i) mapping->base[i] = static_cast<std::byte>(mix(i));
  const uint64_t length = g.part_bytes() + 37;  // begins in part 0 and ends in part 1
  channel_->range(bytes, layered, {5, 11, length});
  const RawCompletion done = completion(channel_);
  EXPECT_EQ(done.code(), Code::kOk);
  EXPECT_EQ(done.head.bytes, length);
  const engine::View& v = view(self_, layered);
  for (uint64_t i = 0; i < length; ++i) {
    const uint64_t at = 11 + i;
    const engine::Part& part = v.parts[at / g.part_bytes()];
    ASSERT_EQ(part.address()[at % g.part_bytes()], mapping->base[5 + i]) << i;
  }
}

TEST_F(Ranges, ArithmeticAtTheEdgesIsChecked) {
  const uint64_t a = region(self_, memory(4096));
  const uint64_t b = region(self_, memory(4096));
  const auto outcome_of = [&](shm::RangeEntry range) {
    channel_->range(a, b, range);
    return completion(channel_).code();
  };
  EXPECT_EQ(outcome_of({0, 0, 4096}), Code::kOk);
  EXPECT_EQ(outcome_of({1, 0, 4096}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({0, 1, 4096}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({UINT64_MAX, 0, 2}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({4, 0, UINT64_MAX}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({UINT64_MAX - 1, UINT64_MAX - 1, UINT64_MAX}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({1ull << 32, 0, 1}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({4096, 0, 1}), Code::kOutOfRange);
  EXPECT_EQ(outcome_of({0, 0, 0}), Code::kInvalidArgument);
}

TEST_F(Ranges, ARangeThatMeetsItselfIsOverlap) {
  const uint64_t a = region(self_, memory(4096));
  channel_->range(a, a, {0, 100, 101});
  EXPECT_EQ(completion(channel_).code(), Code::kOverlap);
  channel_->range(a, a, {0, 100, 100});
  EXPECT_EQ(completion(channel_).code(), Code::kOk);
}

TEST_F(Transfer, ARegionThatLostItsPagesIsAMemoryFaultThatNamesTheBlocks) {
  const uint64_t source = make(LayoutKind::kFullyContiguous);
  const uint64_t destination = make(LayoutKind::kFullyContiguous);
  channel_->transfer(source, destination, {{0, 0}, {2, 2}});
  const_cast<engine::Mapping*>(view(self_, source).parts[0].mapping)->broken =
      true;  // as the SIGBUS handler does
  const RawCompletion done = completion(channel_);
  EXPECT_EQ(done.code(), Code::kMemoryFault);
  EXPECT_EQ(done.failed.size(), 2u);
  bool reported = false;
  for (const engine::Report& report : reports())
    reported |= report.kind == engine::Report::Kind::kRegionBroken;
  EXPECT_TRUE(reported);
}

TEST_F(Transfer, ViewsAreHeldWhileARequestNeedsThemAndNotLonger) {
  const uint64_t source = make(LayoutKind::kFullyContiguous, 64);
  const uint64_t destination = make(LayoutKind::kLayerSeparateBlockSecond, 64);
  std::vector<shm::BlockPair> pairs;
  for (uint32_t i = 0; i < 64; ++i) pairs.push_back({i, i});
  channel_->transfer(source, destination, pairs);
  pollers[0]->poll_once();
  EXPECT_EQ(view(self_, source).use_count(), 1u);
  EXPECT_EQ(view(self_, destination).use_count(), 1u);
  completion(channel_);
  EXPECT_EQ(view(self_, source).use_count(), 0u);
  EXPECT_EQ(view(self_, destination).use_count(), 0u);
}

}  // namespace
}  // namespace wherry::test
