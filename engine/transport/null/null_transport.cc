#include "engine/transport/null/null_transport.h"

#include <array>

namespace wherry::engine {
namespace {

class NullLane final : public Lane {
 public:
  uint32_t room() const override { return kEntries - (tail_ - head_); }
  uint64_t window_bytes() const override { return UINT64_MAX; }
  uint64_t max_run_bytes() const override { return 1 << 20; }

  void post(const Run* runs, uint32_t count) override {
    for (uint32_t i = 0; i < count; ++i) {
      RunResult& result = done_[tail_++ % kEntries];
      result = RunResult{};
      result.request = runs[i].request;
      result.first_pair = runs[i].first_pair;
      result.pair_count = runs[i].pair_count;
      result.bytes = runs[i].length;
      stats_.bytes += runs[i].length;
    }
    stats_.runs += count;
    ++stats_.batches;
  }

  uint32_t poll(RunResult* results, uint32_t capacity) override {
    uint32_t filled = 0;
    while (filled < capacity && head_ != tail_) results[filled++] = done_[head_++ % kEntries];
    return filled;
  }

  void abort(uint32_t /*request*/) override {}  // everything posted is done already
  bool busy() const override { return head_ != tail_; }
  int arm() override { return -1; }
  LaneStats stats() const override { return stats_; }

 private:
  static constexpr uint32_t kEntries = 256;
  std::array<RunResult, kEntries> done_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  LaneStats stats_;
};

}  // namespace

std::unique_ptr<Lane> NullTransport::make_lane(uint32_t /*poller*/) {
  return std::make_unique<NullLane>();
}

}  // namespace wherry::engine
