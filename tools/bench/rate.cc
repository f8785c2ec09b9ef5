#include "tools/bench/rate.h"

#include <deque>
#include <string>
#include <vector>

#include "shm/slot.h"
#include "tools/bench/attach.h"
#include "tools/bench/ring_stream.h"
#include "tools/bench/walk.h"

namespace wherry::bench {
namespace {

constexpr uint32_t kBlocks = 1024;

struct Load {
  const char* name;
  const char* unit;
  uint32_t pairs;      // a request
  uint32_t in_flight;  // requests
};
constexpr Load kLoads[] = {{"pairs/1024", "1/s", kBlocks, 4}, {"requests/1", "1/s", 1, 256}};

// Pairs a second.
Result<double> engine_rate(const Setting& setting, Channel& channel, const LayoutPair& layouts,
                           const Load& load, uint64_t slice_ns) {
  const std::vector<BlockId> from = scattered(kBlocks, 1);
  const std::vector<BlockId> to = scattered(kBlocks, 2);
  TransferOptions options;
  options.required_transport = TransportKind::kNull;
  std::deque<TransferCompleteNotification> under_way;
  const auto finish_oldest = [&]() -> Status {
    const Result<Completion> completion = await(setting, under_way.front());
    under_way.pop_front();
    if (!completion.ok()) return completion.status();
    return completion->ok() ? Status() : Status(completion->status, completion->to_string());
  };
  const uint64_t begin = monotonic_ns();
  uint64_t now = begin;
  uint64_t finished = 0;
  while (now - begin < slice_ns) {
    while (under_way.size() < load.in_flight) {
      const size_t at = load.pairs == 1 ? finished % kBlocks : 0;
      Result<TransferCompleteNotification> request = channel.execute_local_transfer(
          layouts.source, layouts.destination, std::span(from).subspan(at, load.pairs),
          std::span(to).subspan(at, load.pairs), options);
      if (!request.ok()) return request.status();
      under_way.push_back(std::move(*request));
    }
    // Half of them at a time: neither side waits for the other.
    for (uint32_t i = 0; i < load.in_flight / 2; ++i, ++finished) {
      if (Status s = finish_oldest(); !s.ok()) return s;
    }
    now = monotonic_ns();
  }
  while (!under_way.empty()) {
    if (Status s = finish_oldest(); !s.ok()) return s;
  }
  return static_cast<double>(finished * load.pairs) * 1e9 / static_cast<double>(now - begin);
}

}  // namespace

Status run_rate(Setting& setting) {
  const uint64_t slice_ns = setting.options.quick ? 5'000'000 : 100'000'000;
  Result<Channel> channel = setting.client.channel();
  if (!channel.ok()) return channel.status();
  const Result<LayoutPair> layouts = make_layouts(setting.client, kBlocks, 64);
  if (!layouts.ok()) return layouts.status();
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    Round round;
    for (const Load& load : kLoads) {
      if (Status s = setting.engine.pause(); !s.ok()) return s;
      const Result<double> floor =
          ring_stream(setting.cores, shm::record_slots(load.pairs, 0), slice_ns);
      setting.engine.resume();
      if (!floor.ok()) return floor.status();
      const Result<double> rate = engine_rate(setting, *channel, *layouts, load, slice_ns);
      if (!rate.ok()) return rate.status();
      round.insert(round.end(), {*rate, *floor * load.pairs});
    }
    return round;
  });
  if (!rounds.ok()) return rounds.status();
  size_t column = 0;
  for (const Load& load : kLoads) {
    Figure figure = setting.figure("rate", load.name, load.unit, *rounds, column);
    figure.floor_name = "ring";
    column += 2;
    if (Status s = setting.report.add(figure); !s.ok()) return s;
  }
  return {};
}

}  // namespace wherry::bench
