#include "tools/bench/helped_copy.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "tools/bench/attach.h"
#include "tools/bench/walk.h"

namespace wherry::bench {
namespace {

constexpr uint64_t kBlockBytes = 64 << 10;
constexpr uint32_t kInFlight = 32;

// A client of one engine that copies all blocks of its pools, round and round, in scattered order.
class Copier {
 public:
  static Result<Copier> make(const EngineChild& engine, uint64_t pool_bytes) {
    Result<Client> client = attach(engine, "helped-copy");
    if (!client.ok()) return client.status();
    const auto blocks = static_cast<uint32_t>(pool_bytes / kBlockBytes);
    const Result<LayoutPair> layouts = make_layouts(*client, blocks, kBlockBytes);
    if (!layouts.ok()) return layouts.status();
    Copier copier(std::move(*client), *layouts);
    const uint32_t walked = blocks / kBlocksPerRequest * kBlocksPerRequest;
    copier.from_ = scattered(walked, 1);
    copier.to_ = scattered(walked, 2);
    return copier;
  }

  Result<double> gb_per_s(uint64_t slice_ns) {
    const uint64_t begin = monotonic_ns();
    uint64_t now = begin;
    uint64_t bytes = 0;
    while (now - begin < slice_ns) {
      while (under_way_.size() < kInFlight) {
        if (Status s = submit(); !s.ok()) return s;
      }
      if (Status s = finish_oldest(); !s.ok()) return s;
      bytes += kBlocksPerRequest * kBlockBytes;
      now = monotonic_ns();
    }
    while (!under_way_.empty()) {
      if (Status s = finish_oldest(); !s.ok()) return s;
    }
    return static_cast<double>(bytes) / static_cast<double>(now - begin);
  }

 private:
  Copier(Client client, const LayoutPair& layouts)
      : client_(std::move(client)), layouts_(layouts) {}

  Status submit() {
    Result<TransferCompleteNotification> request = client_.execute_local_transfer(
        layouts_.source, layouts_.destination, std::span(from_).subspan(at_, kBlocksPerRequest),
        std::span(to_).subspan(at_, kBlocksPerRequest));
    if (!request.ok()) return request.status();
    at_ = (at_ + kBlocksPerRequest) % from_.size();
    under_way_.push_back(std::move(*request));
    return {};
  }

  Status finish_oldest() {
    const Result<Completion> completion = under_way_.front().wait(monotonic_ns() + kLongestNs);
    if (!completion.ok()) return completion.status();
    under_way_.pop_front();
    return completion->ok() ? Status() : Status(completion->status, completion->to_string());
  }

  Client client_;
  LayoutPair layouts_;
  std::vector<BlockId> from_;
  std::vector<BlockId> to_;
  size_t at_ = 0;
  std::deque<TransferCompleteNotification> under_way_;
};

}  // namespace

Status run_helped_copy(Setting& setting) {
  const uint64_t slice_ns = setting.options.quick ? 10'000'000 : 300'000'000;
  const uint64_t pool_bytes = std::max<uint64_t>(setting.options.pool_bytes / 2, 64 << 20);
  Result<Copier> alone = Copier::make(setting.engine, pool_bytes);
  if (!alone.ok()) return alone.status();
  Result<Copier> helped = Copier::make(*setting.helped, pool_bytes);
  if (!helped.ok()) return helped.status();
  const Result<Rounds> rounds = setting.gate.measure([&]() -> Result<Round> {
    const Result<double> floor = alone->gb_per_s(slice_ns);
    if (!floor.ok()) return floor.status();
    // The other engine spins on the core that this one's poller wants.
    if (Status s = setting.engine.pause(); !s.ok()) return s;
    const Result<double> rate = helped->gb_per_s(slice_ns);
    setting.engine.resume();
    if (!rate.ok()) return rate.status();
    return Round{*rate, *floor};
  });
  if (!rounds.ok()) return rounds.status();
  Figure figure = setting.figure("copy", "cold/fc-fc/65536/32/copy_thread", "GB/s", *rounds, 0);
  figure.floor_name = "poller";
  return setting.report.add(figure);
}

}  // namespace wherry::bench
