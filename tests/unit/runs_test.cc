// Runs against brute force: which byte goes where is written down byte by byte, from the order in
// which the kinds lie in memory, and every run must say the same.
#include "engine/poller/runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/expected_runs.h"

namespace wherry::engine {
namespace {

constexpr LayoutKind kKinds[] = {LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
                                 LayoutKind::kLayerSeparateBlockSecond,
                                 LayoutKind::kDescriptorList};
constexpr uint64_t kNoLimit = UINT64_MAX;

// Pairs with every destination once: scattered, or in stretches of neighbours on both sides.
std::vector<shm::BlockPair> random_pairs(uint32_t sources, uint32_t destinations,
                                         std::mt19937_64& random) {
  std::vector<uint32_t> order(destinations);
  std::iota(order.begin(), order.end(), 0);
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  order.resize(random() % (destinations + 1));
  std::vector<shm::BlockPair> pairs;
  const uint64_t stay = random() % 4;  // how often a source is the one behind the last
  for (const uint32_t destination : order) {
    auto source = static_cast<uint32_t>(random() % sources);
    if (!pairs.empty() && random() % 4 < stay) source = (pairs.back().source + 1) % sources;
    pairs.push_back({source, destination});
  }
  return pairs;
}

std::vector<shm::BlockPair> neighbours(uint32_t source, uint32_t destination, uint32_t count) {
  std::vector<shm::BlockPair> pairs;
  for (uint32_t i = 0; i < count; ++i) pairs.push_back({source + i, destination + i});
  return pairs;
}

std::string describe(const Geometry& from, const Geometry& to) {
  return std::string(layout_kind_name(from.kind)) + " to " +
         std::string(layout_kind_name(to.kind)) + ", " + std::to_string(from.num_blocks) + "/" +
         std::to_string(to.num_blocks) + " blocks, " + std::to_string(from.num_layers) +
         " layers, outer " + std::to_string(from.outer_dim) + ", R " +
         std::to_string(from.inner_dim);
}

TEST(Runs, EveryPairOfKindsAndEveryLayerRangeInWholeRuns) {
  std::mt19937_64 random(1);
  for (const LayoutKind from : kKinds) {
    for (const LayoutKind to : kKinds) {
      for (const uint32_t layers : {1u, 4u}) {
        for (const uint32_t outer : {1u, 2u}) {
          const Memory source = layout(geometry(from, 7, layers, outer, 3), random);
          const Memory destination = layout(geometry(to, 9, layers, outer, 3), random);
          SCOPED_TRACE(describe(source.geometry(), destination.geometry()));
          for (uint32_t first = 0; first < layers; ++first) {
            for (uint32_t end = first + 1; end <= layers; ++end) {
              for (int round = 0; round < 4; ++round) {
                SCOPED_TRACE("layers " + std::to_string(first) + " to " + std::to_string(end));
                Job job(source, destination);
                job.blocks(source, destination, random_pairs(7, 9, random), first, end);
                job.check_whole();
                if (testing::Test::HasFatalFailure()) return;
                const bool list =
                    from == LayoutKind::kDescriptorList || to == LayoutKind::kDescriptorList;
                EXPECT_TRUE(list || !job.could_be_fewer());
              }
            }
          }
        }
      }
    }
  }
}

TEST(Runs, PiecesOfAnyLengthAddUpToTheSame) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    const LayoutKind from = kKinds[random() % 4];
    const LayoutKind to = kKinds[random() % 4];
    const auto layers = static_cast<uint32_t>(1 + random() % 4);
    const auto outer = static_cast<uint32_t>(1 + random() % 2);
    const auto bytes = static_cast<uint32_t>(1 + random() % 9);
    const auto sources = static_cast<uint32_t>(1 + random() % 12);
    const auto destinations = static_cast<uint32_t>(1 + random() % 12);
    const Memory source = layout(geometry(from, sources, layers, outer, bytes), random);
    const Memory destination = layout(geometry(to, destinations, layers, outer, bytes), random);
    SCOPED_TRACE("round " + std::to_string(round) + ": " +
                 describe(source.geometry(), destination.geometry()));
    const auto first = static_cast<uint32_t>(random() % layers);
    const auto end = static_cast<uint32_t>(first + 1 + random() % (layers - first));
    Job job(source, destination);
    job.blocks(source, destination, random_pairs(sources, destinations, random), first, end);
    const uint64_t style = random() % 4;
    job.check([&]() -> uint64_t {
      switch (style) {
        case 0:
          return 1 + random() % 4;
        case 1:
          return 1 + random() % (2 * bytes);
        case 2:
          return bytes * (1 + random() % 3);
        default:
          return random() % 3 == 0 ? kNoLimit : 1 + random() % 40;
      }
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

struct Count {
  LayoutKind from;
  LayoutKind to;
  size_t all_layers;
  size_t some_layers;  // two of three
};

// Four neighbours of three layers, K and V: how many runs it comes to.
TEST(Runs, NeighboursMoveTogetherAsFarAsBothKindsLetThem) {
  constexpr LayoutKind kFc = LayoutKind::kFullyContiguous;
  constexpr LayoutKind kFirst = LayoutKind::kLayerSeparateBlockFirst;
  constexpr LayoutKind kSecond = LayoutKind::kLayerSeparateBlockSecond;
  constexpr LayoutKind kList = LayoutKind::kDescriptorList;
  const Count counts[] = {
      {kFc, kFc, 1, 4},       {kFc, kFirst, 12, 8},     {kFc, kSecond, 24, 16},
      {kFc, kList, 4, 4},     {kFirst, kFirst, 3, 2},   {kFirst, kSecond, 24, 16},
      {kFirst, kList, 12, 8}, {kSecond, kSecond, 6, 4}, {kSecond, kList, 24, 16},
      {kList, kList, 4, 4},
  };
  std::mt19937_64 random(3);
  for (const Count& count : counts) {
    for (const bool turned : {false, true}) {
      const Memory source = layout(geometry(turned ? count.to : count.from, 8, 3, 2, 5), random);
      const Memory destination =
          layout(geometry(turned ? count.from : count.to, 8, 3, 2, 5), random);
      SCOPED_TRACE(describe(source.geometry(), destination.geometry()));
      Job all(source, destination);
      all.blocks(source, destination, neighbours(1, 3, 4), 0, 3);
      all.check_whole();
      EXPECT_EQ(all.runs().size(), count.all_layers);
      Job some(source, destination);
      some.blocks(source, destination, neighbours(1, 3, 4), 1, 3);
      some.check_whole();
      EXPECT_EQ(some.runs().size(), count.some_layers);
    }
  }
}

TEST(Runs, OnlyNeighboursInTheSameOrderOnBothSidesAreMerged) {
  std::mt19937_64 random(4);
  const Memory source = layout(geometry(LayoutKind::kFullyContiguous, 9, 2, 2, 4), random);
  const Memory destination = layout(geometry(LayoutKind::kFullyContiguous, 9, 2, 2, 4), random);
  Job job(source, destination);
  job.blocks(source, destination, {{0, 0}, {1, 1}, {2, 3}, {3, 4}, {5, 5}, {4, 6}, {3, 7}, {3, 8}},
             0, 2);
  job.check_whole();
  std::vector<uint32_t> counts;
  for (const auto& run : job.runs()) counts.push_back(run.pair_count);
  EXPECT_EQ(counts, (std::vector<uint32_t>{2, 2, 1, 1, 1, 1}));
}

TEST(Runs, APieceOfAMergedRunNamesTheBlocksItTouches) {
  std::mt19937_64 random(5);
  const Memory source = layout(geometry(LayoutKind::kFullyContiguous, 8, 1, 1, 10), random);
  const Memory destination = layout(geometry(LayoutKind::kFullyContiguous, 8, 1, 1, 10), random);
  Job job(source, destination);
  job.blocks(source, destination, neighbours(0, 0, 5), 0, 1);
  job.check([] { return uint64_t{15}; });  // bytes 0-14, 15-29, 30-44, 45-49
  ASSERT_EQ(job.runs().size(), 4u);
  const uint32_t wanted[][2] = {{0, 2}, {1, 2}, {3, 2}, {4, 1}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(job.runs()[i].first_pair, wanted[i][0]);
    EXPECT_EQ(job.runs()[i].pair_count, wanted[i][1]);
  }
}

TEST(Runs, AFullRecordOfPairsIsWalkedChunkByChunk) {
  std::mt19937_64 random(6);
  const Memory source = layout(geometry(LayoutKind::kFullyContiguous, 400, 1, 1, 2), random);
  const Memory destination =
      layout(geometry(LayoutKind::kLayerSeparateBlockSecond, 400, 1, 1, 2), random);
  for (const uint32_t count : {1u, 7u, 8u, 9u, 15u, 16u, 400u}) {
    for (const bool merged : {false, true}) {
      std::vector<shm::BlockPair> pairs = neighbours(0, 0, count);
      if (!merged) std::reverse(pairs.begin(), pairs.end());
      Job job(source, destination);
      job.blocks(source, destination, pairs, 0, 1);
      job.check_whole();
      EXPECT_EQ(job.runs().size(), merged ? 1u : count);
    }
  }
}

TEST(Runs, AnEmptyRequestAndOneThatEndedHaveNone) {
  std::mt19937_64 random(7);
  const Memory source = layout(geometry(LayoutKind::kFullyContiguous, 4, 2, 2, 3), random);
  const Memory destination = layout(geometry(LayoutKind::kFullyContiguous, 4, 2, 2, 3), random);
  Job empty(source, destination);
  empty.blocks(source, destination, {}, 0, 2);
  EXPECT_TRUE(runs_exhausted(empty.request()));
  Job ended(source, destination);
  ended.blocks(source, destination, neighbours(0, 0, 3), 0, 2);
  EXPECT_FALSE(runs_exhausted(ended.request()));
  EXPECT_EQ(first_unfinished_pair(ended.request()), 0u);
  ended.request().ended_early = true;
  EXPECT_TRUE(runs_exhausted(ended.request()));
}

TEST(Runs, EntriesOfPlainListsMoveEachByItself) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 300; ++round) {
    Geometry raw;
    raw.kind = LayoutKind::kDescriptorList;
    raw.num_blocks = 12;
    std::vector<uint64_t> lengths(12);
    for (uint64_t& length : lengths) length = 1 + random() % 20;
    const Memory source(raw, lengths, random);
    std::vector<uint32_t> order(12);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<uint64_t> shuffled;
    std::vector<shm::BlockPair> pairs;
    for (uint32_t i = 0; i < 12; ++i) {
      shuffled.push_back(lengths[order[i]]);
      if (random() % 4 != 0) pairs.push_back({order[i], i});
    }
    const Memory destination(raw, shuffled, random);
    Job whole(source, destination);
    whole.entries(pairs);
    whole.check_whole();
    EXPECT_EQ(whole.runs().size(), pairs.size());
    Job pieces(source, destination);
    pieces.entries(pairs);
    pieces.check([&] { return 1 + random() % 9; });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Runs, AByteRangeCrossesThePartsOfBothSides) {
  std::mt19937_64 random(9);
  Geometry raw;
  raw.kind = LayoutKind::kDescriptorList;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const auto memory = [&] {
      std::vector<uint64_t> lengths(1 + random() % 5);
      for (uint64_t& length : lengths) length = 1 + random() % 30;
      Geometry g = raw;
      g.num_blocks = static_cast<uint32_t>(lengths.size());
      return Memory(g, lengths, random);
    };
    const Memory source = memory();
    const Memory destination = memory();
    const uint64_t from = random() % source.view().total_bytes;
    const uint64_t to = random() % destination.view().total_bytes;
    const uint64_t most =
        std::min(source.view().total_bytes - from, destination.view().total_bytes - to);
    Job whole(source, destination);
    whole.range(from, to, most);
    whole.check_whole();
    Job pieces(source, destination);
    pieces.range(from, to, 1 + random() % most);
    pieces.check([&] { return 1 + random() % 11; });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(FailedPairs, AreMarkedOnceEachAndFoundByTheirIndex) {
  std::mt19937_64 random(10);
  const Memory source = layout(geometry(LayoutKind::kFullyContiguous, 400, 1, 1, 1), random);
  const Memory destination = layout(geometry(LayoutKind::kFullyContiguous, 400, 1, 1, 1), random);
  const shm::BlockPair mark = failed_mark(Code::kMemoryFault, 9, 5000);
  EXPECT_NE(mark.source & kFailedBit, 0u);
  EXPECT_EQ(mark.destination, 18u | 9u << 8 | 5000u << 16);
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<uint32_t>(1 + random() % 100);
    const std::vector<shm::BlockPair> pairs = neighbours(3, 7, count);
    Job job(source, destination);
    job.blocks(source, destination, pairs, 0, 1);
    std::vector<bool> failed(count, false);
    for (int i = 0; i < 5; ++i) {
      const auto first = static_cast<uint32_t>(random() % count);
      const auto length = static_cast<uint32_t>(random() % 40);  // may reach beyond the end
      uint32_t wanted = 0;
      for (uint32_t pair = first; pair < std::min(first + length, count); ++pair) {
        wanted += failed[pair] ? 0 : 1;
        failed[pair] = true;
      }
      ASSERT_EQ(mark_failed(job.request(), job.chunks(), first, length, mark), wanted);
    }
    for (uint32_t pair = 0; pair < count; ++pair) {
      const shm::BlockPair& now = pair_at(job.request(), job.chunks(), pair);
      ASSERT_EQ(now.source, failed[pair] ? mark.source : pairs[pair].source) << pair;
      ASSERT_EQ(now.destination, failed[pair] ? mark.destination : pairs[pair].destination) << pair;
    }
  }
}

}  // namespace
}  // namespace wherry::engine
