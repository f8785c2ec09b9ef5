#include "tools/bench/fair.h"

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/attach.h"
#include "tools/bench/round_trip.h"
#include "tools/bench/summary.h"
#include "tools/bench/walk.h"

namespace wherry::bench {
namespace {

constexpr uint32_t kCrowds[] = {1, 4, 16, 64};
constexpr uint64_t kBlockBytes = 64 << 10;
constexpr uint32_t kBlocksPerRequest = 8;
constexpr uint32_t kInFlight = 4;        // requests of each client
constexpr uint32_t kFewestBlocks = 128;  // of a pool: 8 MiB, which is cold

// A client with pools of its own that keeps requests in flight.
class Mover {
 public:
  static Result<Mover> make(const EngineChild& engine, const std::string& name, uint32_t blocks,
                            uint64_t block_bytes, uint32_t blocks_per_request) {
    Result<Client> client = attach(engine, name);
    if (!client.ok()) return client.status();
    Mover mover(std::move(*client));
    Result<Channel> channel = mover.client_.channel();
    if (!channel.ok()) return channel.status();
    mover.channel_.push_back(std::move(*channel));
    const Result<LayoutPair> layouts = make_layouts(mover.client_, blocks, block_bytes);
    if (!layouts.ok()) return layouts.status();
    mover.layouts_ = *layouts;
    mover.ids_ = scattered(blocks, 1);
    mover.per_request_ = blocks_per_request;
    return mover;
  }

  // Collects what is complete and fills up again.
  Status go_on(uint32_t in_flight) {
    while (!under_way_.empty() && under_way_.front().poll()) {
      const Completion& completion = *under_way_.front().completion();
      if (!completion.ok()) return {completion.status, completion.to_string()};
      bytes_ += completion.bytes;
      under_way_.pop_front();
    }
    while (under_way_.size() < in_flight) {
      if (next_ + per_request_ > ids_.size()) next_ = 0;
      const auto ids = std::span<const BlockId>(ids_).subspan(next_, per_request_);
      next_ += per_request_;
      Result<TransferCompleteNotification> request =
          channel_.front().execute_local_transfer(layouts_.source, layouts_.destination, ids, ids);
      if (!request.ok()) return request.status();
      under_way_.push_back(std::move(*request));
    }
    return {};
  }

  Status drain(const Setting& setting) {
    while (!under_way_.empty()) {
      const Result<Completion> completion = await(setting, under_way_.front());
      if (!completion.ok()) return completion.status();
      under_way_.pop_front();
    }
    return {};
  }

  uint64_t take_bytes() { return std::exchange(bytes_, 0); }
  Channel& channel() { return channel_.front(); }
  const LayoutPair& layouts() const { return layouts_; }

 private:
  explicit Mover(Client client) : client_(std::move(client)) {}

  Client client_;
  std::vector<Channel> channel_;  // one, once it is there
  LayoutPair layouts_;
  std::vector<BlockId> ids_;
  uint32_t per_request_ = 0;
  size_t next_ = 0;  // in ids_
  uint64_t bytes_ = 0;
  std::deque<TransferCompleteNotification> under_way_;
};

struct Share {
  double gb_per_s = 0;
  double jain = 0;
};

Result<Share> share(const Setting& setting, std::vector<Mover>& movers, uint64_t slice_ns) {
  const auto go_on = [&](uint64_t for_ns) -> Status {
    const uint64_t begin = monotonic_ns();
    while (monotonic_ns() - begin < for_ns) {
      for (Mover& mover : movers) {
        if (Status s = mover.go_on(kInFlight); !s.ok()) return s;
      }
    }
    return {};
  };
  if (Status s = go_on(slice_ns / 10); !s.ok()) return s;
  for (Mover& mover : movers) mover.take_bytes();
  double sum = 0;
  double squares = 0;
  const uint64_t begin = monotonic_ns();
  const uint64_t end = begin + kLongestNs;
  // At least one slice; more only where the poller got no core in it.
  do {
    if (Status s = go_on(slice_ns); !s.ok()) return s;
    for (Mover& mover : movers) {
      const auto bytes = static_cast<double>(mover.take_bytes());
      sum += bytes;
      squares += bytes * bytes;
    }
  } while (sum == 0 && monotonic_ns() < end);
  if (sum == 0)
    return Status(Code::kTimedOut, "fair: wanted bytes moved, got none; see the engine");
  const auto elapsed_ns = static_cast<double>(monotonic_ns() - begin);
  for (Mover& mover : movers) {
    if (Status s = mover.drain(setting); !s.ok()) return s;
  }
  return Share{sum / elapsed_ns, sum * sum / (static_cast<double>(movers.size()) * squares)};
}

// For each crowd: GB/s of all, GB/s of one, index, 1.
Status run_crowds(Setting& setting) {
  const uint64_t slice_ns = setting.options.quick ? 5'000'000 : 200'000'000;
  // The same memory for each crowd, in pools of its clients.
  const auto all_blocks = static_cast<uint32_t>(setting.options.pool_bytes / 2 / kBlockBytes);
  std::vector<std::vector<Mover>> crowds;
  for (const uint32_t count : kCrowds) {
    if (setting.options.quick && count > 4) break;
    crowds.emplace_back();
    const uint32_t blocks = std::max(all_blocks / count, kFewestBlocks);
    for (uint32_t i = 0; i < count; ++i) {
      const std::string name = "fair-" + std::to_string(count) + "-" + std::to_string(i);
      Result<Mover> mover =
          Mover::make(setting.engine, name, blocks, kBlockBytes, kBlocksPerRequest);
      if (!mover.ok()) return mover.status();
      crowds.back().push_back(std::move(*mover));
    }
  }
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    Round round;
    double one = 0;
    for (std::vector<Mover>& crowd : crowds) {
      const Result<Share> all = share(setting, crowd, slice_ns);
      if (!all.ok()) return all.status();
      if (crowd.size() == 1) one = all->gb_per_s;
      round.insert(round.end(), {all->gb_per_s, one, all->jain, 1});
    }
    return round;
  });
  if (!rounds.ok()) return rounds.status();
  size_t column = 0;
  for (const std::vector<Mover>& crowd : crowds) {
    const std::string count = std::to_string(crowd.size());
    Figure total = setting.figure("fair", "total/" + count, "GB/s", *rounds, column);
    total.floor_name = "one client";
    if (Status s = setting.report.add(total); !s.ok()) return s;
    Figure jain = setting.figure("fair", "jain/" + count, "index", *rounds, column + 2);
    jain.floor_name = "even";
    if (Status s = setting.report.add(jain); !s.ok()) return s;
    column += 4;
  }
  return {};
}

Status run_flood(Setting& setting) {
  const uint32_t count = setting.options.quick ? 500 : 5000;
  constexpr uint64_t kMiB = 1 << 20;
  const auto flood_blocks = static_cast<uint32_t>(setting.options.pool_bytes / 4 / kMiB);
  Result<Mover> small = Mover::make(setting.engine, "fair-small", 64, 4096, 1);
  if (!small.ok()) return small.status();
  Result<Mover> flood = Mover::make(setting.engine, "fair-flood", flood_blocks, kMiB, 1);
  if (!flood.ok()) return flood.status();
  constexpr BlockId kBlock[] = {0};
  RoundTrip trip;
  trip.layouts = &small->layouts();
  trip.blocks = kBlock;
  trip.spin = setting.cores.two();
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    std::vector<uint32_t> alone;
    std::vector<uint32_t> beside;
    trip.between = nullptr;
    if (Status s = round_trips(setting, small->channel(), trip, count, &alone); !s.ok()) return s;
    trip.between = [&flood] { return flood->go_on(8); };
    if (Status s = trip.between(); !s.ok()) return s;
    if (Status s = round_trips(setting, small->channel(), trip, count, &beside); !s.ok()) return s;
    if (Status s = flood->drain(setting); !s.ok()) return s;
    return Round{percentile(beside, 0.50), percentile(alone, 0.50), percentile(beside, 0.99),
                 percentile(alone, 0.99)};
  });
  if (!rounds.ok()) return rounds.status();
  size_t column = 0;
  for (const char* share : {"p50", "p99"}) {
    Figure figure =
        setting.figure("fair", std::string("beside_flood/4096/") + share, "ns", *rounds, column);
    figure.floor_name = "alone";
    column += 2;
    if (Status s = setting.report.add(figure); !s.ok()) return s;
  }
  return {};
}

}  // namespace

Status run_fair(Setting& setting) {
  if (Status s = run_crowds(setting); !s.ok()) return s;
  return run_flood(setting);
}

}  // namespace wherry::bench
