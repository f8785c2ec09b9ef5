#include "tools/bench/ring.h"

#include <string>
#include <utility>
#include <vector>

#include "tools/bench/ping_pong.h"
#include "tools/bench/summary.h"

namespace wherry::bench {
namespace {

struct Layouts {
  LayoutHandle source;
  LayoutHandle destination;
};

// Of one small block each.
Result<Layouts> make_layouts(Client& client) {
  Geometry g;
  g.num_blocks = 1;
  g.num_layers = 1;
  g.outer_dim = 1;
  g.page_size = 1;
  g.inner_dim = 32;
  const Result<Region> region = client.create_region(2 * g.block_bytes());
  if (!region.ok()) return region.status();
  const Result<LayoutHandle> source =
      client.register_layout(fully_contiguous(region->handle, 0, g));
  if (!source.ok()) return source.status();
  const Result<LayoutHandle> destination =
      client.register_layout(fully_contiguous(region->handle, g.block_bytes(), g));
  if (!destination.ok()) return destination.status();
  return Layouts{*source, *destination};
}

// Appends the nanoseconds of `count` requests, one after the other.
Status round_trips(const Setting& setting, Channel& channel, const Layouts& layouts, uint32_t count,
                   std::vector<uint32_t>* samples) {
  constexpr uint32_t kWarmUp = 1000;
  constexpr BlockId kBlock[] = {0};
  TransferOptions options;
  options.required_transport = TransportKind::kNull;
  uint64_t before = monotonic_ns();
  for (uint32_t i = 0; i < count + kWarmUp; ++i) {
    Result<TransferCompleteNotification> request = channel.try_execute_local_transfer(
        layouts.source, layouts.destination, kBlock, kBlock, options);
    if (!request.ok()) return request.status();
    // What a caller does that has nothing else to do; await() is for when that takes long.
    for (int polls = 0; setting.cores.two() && polls < 100'000 && !request->poll(); ++polls) {
    }
    if (request->could_yield()) {
      const Result<Completion> awaited = await(setting, *request);
      if (!awaited.ok()) return awaited.status();
    }
    const uint64_t now = monotonic_ns();
    const Completion& completion = *request->completion();
    if (!completion.ok()) return {completion.status, completion.to_string()};
    if (i >= kWarmUp) samples->push_back(static_cast<uint32_t>(now - before));
    before = now;
  }
  return {};
}

constexpr std::pair<const char*, double> kShares[] = {{"p50", 0.50}, {"p99", 0.99}};

}  // namespace

Status run_ring(Setting& setting) {
  const uint32_t chunks = setting.options.quick ? 2 : 10;
  const uint32_t per_chunk = setting.options.quick ? 1000 : 10'000;
  Result<Channel> channel = setting.client.channel();
  if (!channel.ok()) return channel.status();
  const Result<Layouts> layouts = make_layouts(setting.client);
  if (!layouts.ok()) return layouts.status();

  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    std::vector<uint32_t> floor;
    std::vector<uint32_t> ring;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      if (Status s = setting.engine.pause(); !s.ok()) return s;
      Status pinged = ping_pong(setting.cores, per_chunk, &floor);
      setting.engine.resume();
      if (!pinged.ok()) return pinged;
      if (Status s = round_trips(setting, *channel, *layouts, per_chunk, &ring); !s.ok()) return s;
    }
    Round round;
    for (const auto& [name, share] : kShares) {
      round.push_back(percentile(ring, share));
      round.push_back(percentile(floor, share));
    }
    return round;
  });
  if (!rounds.ok()) return rounds.status();

  size_t column = 0;
  for (const auto& [name, share] : kShares) {
    const Summary ring = summarize(rounds->column(column++));
    const Summary floor = summarize(rounds->column(column++));
    Figure figure;
    figure.bench = "ring";
    figure.name = std::string("rtt/") + (setting.cores.two() ? "two_cores/" : "one_core/") + name;
    figure.value = ring.median;
    figure.unit = "ns";
    figure.floor = floor.median;
    figure.floor_name = "ping_pong";
    figure.rounds = static_cast<uint32_t>(rounds->rounds.size());
    figure.disturbed = rounds->disturbed;
    figure.spread = ring.spread;
    if (Status s = setting.report.add(figure); !s.ok()) return s;
  }
  return {};
}

}  // namespace wherry::bench
