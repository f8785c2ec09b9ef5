#include "tools/bench/ring.h"

#include <string>
#include <utility>
#include <vector>

#include "tools/bench/attach.h"
#include "tools/bench/ping_pong.h"
#include "tools/bench/round_trip.h"
#include "tools/bench/summary.h"

namespace wherry::bench {
namespace {

constexpr BlockId kBlock[] = {0};
constexpr uint32_t kIdleClients = 64;
constexpr std::pair<const char*, double> kShares[] = {{"p50", 0.50}, {"p99", 0.99}};

RoundTrip nothing_moves(const LayoutPair& layouts, bool spin) {
  RoundTrip trip;
  trip.layouts = &layouts;
  trip.blocks = kBlock;
  trip.transport = TransportKind::kNull;
  trip.spin = spin;
  return trip;
}

Status add_figures(Setting& setting, const Rounds& rounds, const std::string& name,
                   const char* floor_name) {
  size_t column = 0;
  for (const auto& [share_name, share] : kShares) {
    Figure figure = setting.figure("ring", name + share_name, "ns", rounds, column);
    figure.floor_name = floor_name;
    column += 2;
    if (Status s = setting.report.add(figure); !s.ok()) return s;
  }
  return {};
}

// Value and floor of each share, next to each other.
Round shares(const std::vector<uint32_t>& values, const std::vector<uint32_t>& floors) {
  Round round;
  for (const auto& [name, share] : kShares) {
    round.push_back(percentile(values, share));
    round.push_back(percentile(floors, share));
  }
  return round;
}

// `cores` are the engine's and this thread's; this thread is where it belongs already.
Status run_pair(Setting& setting, const Cores& cores, EngineChild& engine, Client& client,
                const std::string& name) {
  const uint32_t chunks = setting.options.quick ? 2 : 10;
  const uint32_t per_chunk = setting.options.quick ? 1000 : 10'000;
  Result<Channel> channel = client.channel();
  if (!channel.ok()) return channel.status();
  const Result<LayoutPair> layouts = make_layouts(client, 1, 64);
  if (!layouts.ok()) return layouts.status();
  const RoundTrip trip = nothing_moves(*layouts, cores.two());
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    std::vector<uint32_t> floor;
    std::vector<uint32_t> ring;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      if (Status s = engine.pause(); !s.ok()) return s;
      Status pinged = ping_pong(cores, per_chunk, &floor);
      engine.resume();
      if (!pinged.ok()) return pinged;
      if (Status s = round_trips(setting, *channel, trip, per_chunk, &ring); !s.ok()) return s;
    }
    return shares(ring, floor);
  });
  if (!rounds.ok()) return rounds.status();
  return add_figures(setting, *rounds, name, "ping_pong");
}

// The same while others are attached and idle; the floor is the same without them.
Status run_crowd(Setting& setting) {
  const uint32_t count = setting.options.quick ? 1000 : 50'000;
  Result<Channel> channel = setting.client.channel();
  if (!channel.ok()) return channel.status();
  const Result<LayoutPair> layouts = make_layouts(setting.client, 1, 64);
  if (!layouts.ok()) return layouts.status();
  const RoundTrip trip = nothing_moves(*layouts, true);
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    std::vector<uint32_t> alone;
    std::vector<uint32_t> beside;
    if (Status s = round_trips(setting, *channel, trip, count, &alone); !s.ok()) return s;
    std::vector<Client> crowd;
    for (uint32_t i = 0; i < kIdleClients; ++i) {
      Result<Client> idle = attach(setting.engine, "idle-" + std::to_string(i));
      if (!idle.ok()) return idle.status();
      crowd.push_back(std::move(*idle));
    }
    if (Status s = round_trips(setting, *channel, trip, count, &beside); !s.ok()) return s;
    return shares(beside, alone);
  });
  if (!rounds.ok()) return rounds.status();
  return add_figures(setting, *rounds, "rtt/two_cores_64_idle/", "alone");
}

}  // namespace

Status run_ring(Setting& setting) {
  if (!setting.cores.two()) {
    return run_pair(setting, setting.cores, setting.engine, setting.client, "rtt/one_core/");
  }
  if (Status s = run_pair(setting, setting.cores, setting.engine, setting.client, "rtt/two_cores/");
      !s.ok()) {
    return s;
  }
  if (Status s = run_crowd(setting); !s.ok()) return s;
  Result<Client> client = attach(*setting.shared_core, "wherry-bench");
  if (!client.ok()) return client.status();
  return run_pair(setting, Cores{-1, setting.cores.client}, *setting.shared_core, *client,
                  "rtt/one_core/");
}

}  // namespace wherry::bench
