#include "tools/bench/copy.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/floor_copy.h"
#include "tools/bench/helped_copy.h"
#include "tools/bench/summary.h"
#include "tools/bench/walk.h"

namespace wherry::bench {
namespace {

constexpr LayoutKind kKinds[] = {LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
                                 LayoutKind::kLayerSeparateBlockSecond};
constexpr uint32_t kInFlight[] = {1, 32};
constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

struct Pools {
  Region source;
  Region destination;
};

// One destination kind at one piece size.
struct Case {
  LayoutKind kind;
  LayoutHandle source;
  LayoutHandle destination;
  Walk walk;
};

double gb_per_s(uint64_t bytes, uint64_t ns) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(ns, 1));
}

Result<Pools> make_pools(Client& client, uint64_t bytes) {
  Pools pools;
  for (Region* region : {&pools.source, &pools.destination}) {
    Result<Region> made = client.create_region(bytes);
    if (!made.ok()) return made.status().with_context("pools of the bench (--pool sets the size)");
    *region = *made;
    std::memset(region->data, 0x5a, region->bytes);
  }
  return pools;
}

Result<Case> make_case(Client& client, const Pools& pools, const Shape& shape, bool warm) {
  const LayoutKind kind = shape.destination.kind;
  const LayoutSpec from = fully_contiguous(pools.source.handle, 0, shape.source);
  const LayoutSpec to = kind == LayoutKind::kFullyContiguous
                            ? fully_contiguous(pools.destination.handle, 0, shape.destination)
                            : layer_separate(pools.destination.handle, 0, shape.destination,
                                             kind == LayoutKind::kLayerSeparateBlockFirst);
  const Result<LayoutHandle> source = client.register_layout(from);
  if (!source.ok()) return source.status();
  const Result<LayoutHandle> destination = client.register_layout(to);
  if (!destination.ok()) return destination.status();
  return Case{kind, *source, *destination,
              Walk(shape, warm, pools.source.data, pools.destination.data, to.parts)};
}

// Whether what one case names stays in some cache, so that it has to be there before it is
// measured.
bool fits_a_cache(const Walk& walk) { return walk.warm() && walk.request_bytes() <= 64 * kMiB; }

// GB/s of one way to copy, for about `slice_ns`, from where the walk stands.
double floor_rate(Walk& walk, const CopyMethod& method, uint64_t slice_ns) {
  if (fits_a_cache(walk)) {
    for (const Piece& piece : walk.next().pieces) {
      method.copy(piece.to, piece.from, walk.piece_bytes());
    }
  }
  const uint64_t begin = monotonic_ns();
  uint64_t now = begin;
  uint64_t bytes = 0;
  while (now - begin < slice_ns) {
    // Requests can be long: the clock is looked at in between.
    const std::span<const Piece> pieces = walk.next().pieces;
    for (size_t at = 0; at < pieces.size() && now - begin < slice_ns; at += kBlocksPerRequest) {
      for (const Piece& piece : pieces.subspan(at, kBlocksPerRequest)) {
        method.copy(piece.to, piece.from, walk.piece_bytes());
      }
      method.finish();
      bytes += kBlocksPerRequest * walk.piece_bytes();
      now = monotonic_ns();
    }
  }
  return gb_per_s(bytes, now - begin);
}

// Keeps `in_flight` requests of one case under way.
class Flight {
 public:
  Flight(const Setting& setting, Channel& channel, Case& one)
      : setting_(setting), channel_(channel), case_(one) {}

  Status submit(uint32_t blocks) {
    const Walk::Step step = case_.walk.next();
    Result<TransferCompleteNotification> request = channel_.execute_local_transfer(
        case_.source, case_.destination, step.source.first(blocks), step.destination.first(blocks));
    if (!request.ok()) return request.status();
    under_way_.push_back(std::move(*request));
    return {};
  }

  Status fill(uint32_t in_flight) {
    while (under_way_.size() < in_flight) {
      if (Status s = submit(kBlocksPerRequest); !s.ok()) return s;
    }
    return {};
  }

  Status finish_oldest() {
    const Result<Completion> completion = await(setting_, under_way_.front());
    if (!completion.ok()) return completion.status();
    under_way_.pop_front();
    if (completion->ok() || completion->status == Code::kCancelled) return {};
    return {completion->status, completion->to_string()};
  }

  // What is still under way may be gigabytes.
  Status cancel_rest() {
    for (TransferCompleteNotification& request : under_way_) {
      if (Status s = request.cancel(); !s.ok()) return s;
    }
    while (!under_way_.empty()) {
      if (Status s = finish_oldest(); !s.ok()) return s;
    }
    return {};
  }

 private:
  const Setting& setting_;
  Channel& channel_;
  Case& case_;
  std::deque<TransferCompleteNotification> under_way_;
};

// GB/s through the engine, from the first submit to the last completion seen within the slice (or
// the first one after it).
Result<double> engine_rate(const Setting& setting, Channel& channel, Case& one, uint32_t in_flight,
                           uint64_t slice_ns) {
  Flight flight(setting, channel, one);
  // The first request finds the engine just woken.
  if (Status s = flight.submit(fits_a_cache(one.walk) ? kBlocksPerRequest : 1); !s.ok()) return s;
  if (Status s = flight.finish_oldest(); !s.ok()) return s;

  const uint64_t begin = monotonic_ns();
  uint64_t now = begin;
  uint64_t bytes = 0;
  while (now - begin < slice_ns) {
    if (Status s = flight.fill(in_flight); !s.ok()) return s;
    if (Status s = flight.finish_oldest(); !s.ok()) return s;
    bytes += one.walk.request_bytes();
    now = monotonic_ns();
  }
  if (Status s = flight.cancel_rest(); !s.ok()) return s;
  return gb_per_s(bytes, now - begin);
}

// One round: for each case the rate of each floor, then of each number in flight.
Result<Round> one_round(Setting& setting, Channel& channel, std::vector<Case>& cases,
                        const std::vector<CopyMethod>& methods, uint64_t slice_ns) {
  Round round;
  for (Case& one : cases) {
    {
      const Result<OnEngineCore> here = OnEngineCore::enter(setting);
      if (!here.ok()) return here.status();
      for (const CopyMethod& method : methods) {
        round.push_back(floor_rate(one.walk, method, slice_ns));
      }
    }
    for (const uint32_t in_flight : kInFlight) {
      const Result<double> rate = engine_rate(setting, channel, one, in_flight, slice_ns);
      if (!rate.ok()) return rate.status();
      round.push_back(*rate);
    }
  }
  return round;
}

Status report(Setting& setting, const std::vector<Case>& cases,
              const std::vector<CopyMethod>& methods, const Rounds& rounds, bool warm) {
  size_t column = 0;
  for (const Case& one : cases) {
    Figure figure;
    figure.bench = "copy";
    figure.unit = "GB/s";
    figure.rounds = static_cast<uint32_t>(rounds.rounds.size());
    figure.disturbed = rounds.disturbed;
    for (const CopyMethod& method : methods) {
      const double rate = summarize(rounds.column(column++)).median;
      if (rate <= figure.floor) continue;
      figure.floor = rate;
      figure.floor_name = method.name;
    }
    for (const uint32_t in_flight : kInFlight) {
      const Summary rate = summarize(rounds.column(column++));
      figure.name = std::string(warm ? "warm" : "cold") + "/fc-" +
                    std::string(layout_kind_name(one.kind)) + "/" +
                    std::to_string(one.walk.piece_bytes()) + "/" + std::to_string(in_flight);
      figure.value = rate.median;
      figure.spread = rate.spread;
      if (Status s = setting.report.add(figure); !s.ok()) return s;
    }
  }
  return {};
}

// All kinds at one piece size, warm or cold.
Status run_size(Setting& setting, Channel& channel, const Pools& pools, uint64_t piece_bytes,
                bool warm) {
  std::vector<Case> cases;
  for (const LayoutKind kind : kKinds) {
    const std::optional<Shape> shape = make_shape(kind, piece_bytes, setting.options.pool_bytes);
    if (!shape) continue;
    Result<Case> one = make_case(setting.client, pools, *shape, warm);
    if (!one.ok()) return one.status();
    cases.push_back(std::move(*one));
  }
  if (cases.empty()) return {};
  const uint64_t slice_ns = setting.options.quick ? 500'000 : warm ? 6'000'000 : 12'000'000;
  const std::vector<CopyMethod> methods = copy_methods();
  const Result<Rounds> rounds =
      setting.gate.measure([&] { return one_round(setting, channel, cases, methods, slice_ns); });
  if (!rounds.ok()) return rounds.status();
  for (const Case& one : cases) {
    for (const LayoutHandle layout : {one.source, one.destination}) {
      if (Status s = setting.client.free_layout(layout); !s.ok()) return s;
    }
  }
  return report(setting, cases, methods, *rounds, warm);
}

}  // namespace

Status run_copy(Setting& setting) {
  std::vector<uint64_t> sizes = {4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB,
                                 kMiB,     4 * kMiB,  16 * kMiB};
  if (setting.options.quick) sizes = {4 * kKiB, 64 * kKiB, kMiB};
  Result<Channel> channel = setting.client.channel();
  if (!channel.ok()) return channel.status();
  const Result<Pools> pools = make_pools(setting.client, setting.options.pool_bytes);
  if (!pools.ok()) return pools.status();
  for (const bool warm : {false, true}) {
    for (const uint64_t size : sizes) {
      if (Status s = run_size(setting, *channel, *pools, size, warm); !s.ok()) return s;
    }
  }
  return setting.helped == nullptr ? Status() : run_helped_copy(setting);
}

}  // namespace wherry::bench
