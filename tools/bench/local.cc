#include "tools/bench/local.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tools/bench/attach.h"
#include "tools/bench/floor_copy.h"
#include "tools/bench/round_trip.h"
#include "tools/bench/summary.h"

namespace wherry::bench {
namespace {

constexpr uint64_t kBlockBytes = 4096;
constexpr uint32_t kBlocks = 64;
constexpr uint32_t kSizes[] = {1, 32};  // blocks a request

// Every second block, so that no two are neighbours.
std::vector<BlockId> first_blocks(uint32_t count) {
  std::vector<BlockId> ids(count);
  for (uint32_t i = 0; i < count; ++i) ids[i] = 2 * i;
  return ids;
}

// Nanoseconds to copy the blocks of one request, by the fastest method.
double copy_floor(const LayoutPair& layouts, std::span<const BlockId> blocks, uint32_t repeats) {
  std::byte* const from = layouts.region.data;
  std::byte* const to = from + kBlocks * kBlockBytes;
  double best = std::numeric_limits<double>::max();
  for (const CopyMethod& method : copy_methods()) {
    uint64_t begin = 0;
    for (uint32_t i = 0; i < repeats + repeats / 10; ++i) {
      if (i == repeats / 10) begin = monotonic_ns();
      for (const BlockId id : blocks) {
        method.copy(to + id * kBlockBytes, from + id * kBlockBytes, kBlockBytes);
      }
      method.finish();
    }
    best = std::min(best, static_cast<double>(monotonic_ns() - begin) / repeats);
  }
  return best;
}

}  // namespace

Status run_local(Setting& setting) {
  const uint32_t count = setting.options.quick ? 1000 : 20'000;
  Result<Channel> channel = setting.client.channel();
  if (!channel.ok()) return channel.status();
  const Result<LayoutPair> layouts = make_layouts(setting.client, kBlocks, kBlockBytes);
  if (!layouts.ok()) return layouts.status();
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    Round round;
    for (const uint32_t size : kSizes) {
      const std::vector<BlockId> blocks = first_blocks(size);
      double floor = 0;
      {
        const Result<OnEngineCore> here = OnEngineCore::enter(setting);
        if (!here.ok()) return here.status();
        floor = copy_floor(*layouts, blocks, count);
      }
      std::vector<uint32_t> samples;
      RoundTrip trip;
      trip.layouts = &*layouts;
      trip.blocks = blocks;
      trip.spin = setting.cores.two();
      if (Status s = round_trips(setting, *channel, trip, count, &samples); !s.ok()) return s;
      round.insert(round.end(), {percentile(samples, 0.50) / size, floor / size,
                                 percentile(samples, 0.99) / size, floor / size});
    }
    return round;
  });
  if (!rounds.ok()) return rounds.status();
  size_t column = 0;
  for (const uint32_t size : kSizes) {
    for (const char* share : {"p50", "p99"}) {
      const std::string name = "warm/" + std::to_string(kBlockBytes) + "/" + std::to_string(size) +
                               (size == 1 ? "/" : "/per_block/") + share;
      Figure figure = setting.figure("local", name, "ns", *rounds, column);
      figure.floor_name = "copy";
      column += 2;
      if (Status s = setting.report.add(figure); !s.ok()) return s;
    }
  }
  return {};
}

}  // namespace wherry::bench
