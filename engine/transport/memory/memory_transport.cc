#include "engine/transport/memory/memory_transport.h"

#include <array>

#include "engine/transport/memory/copy.h"

namespace wherry::engine {
namespace {

class MemoryLane final : public Lane {
 public:
  explicit MemoryLane(uint64_t piece_bytes) : piece_bytes_(piece_bytes) {}

  uint32_t room() const override { return kEntries - count(); }
  // One piece is being copied while the next one waits.
  uint64_t window_bytes() const override { return 2 * piece_bytes_; }
  uint64_t max_run_bytes() const override { return piece_bytes_; }

  void post(const Run* runs, uint32_t count) override {
    for (uint32_t i = 0; i < count; ++i) queue_[tail_++ % kEntries] = {runs[i], false};
    ++stats_.batches;
  }

  uint32_t poll(RunResult* results, uint32_t capacity) override {
    uint64_t copied = 0;
    uint32_t filled = 0;
    while (filled < capacity && head_ != tail_ && copied < piece_bytes_) {
      const Entry& entry = queue_[head_++ % kEntries];
      results[filled++] = entry.dropped ? result_of(entry.run, Code::kCancelled) : copy(entry.run);
      if (!entry.dropped) copied += entry.run.length;
    }
    return filled;
  }

  void abort(uint32_t request) override {
    for (uint32_t at = head_; at != tail_; ++at) {
      Entry& entry = queue_[at % kEntries];
      if (entry.run.request == request) entry.dropped = true;
    }
  }

  bool busy() const override { return head_ != tail_; }
  int arm() override { return -1; }
  LaneStats stats() const override { return stats_; }

 private:
  struct Entry {
    Run run;
    bool dropped = false;
  };
  static constexpr uint32_t kEntries = 64;

  uint32_t count() const { return tail_ - head_; }

  static RunResult result_of(const Run& run, Code code) {
    RunResult result;
    result.request = run.request;
    result.first_pair = run.first_pair;
    result.pair_count = run.pair_count;
    result.bytes = run.length;
    result.code = code;
    return result;
  }

  RunResult copy(const Run& run) {
    std::byte* to = run.destination->base + run.destination_offset;
    const std::byte* from = run.source->base + run.source_offset;
    (run.streaming ? copy_streaming : copy_cached)(to, from, run.length);
    ++stats_.runs;
    // The SIGBUS handler has put other memory under a mapping that lost pages: what was copied
    // means nothing then. relaxed: the handler ran on this thread or long ago.
    if (run.source->broken.load(std::memory_order_relaxed) ||
        run.destination->broken.load(std::memory_order_relaxed)) {
      ++stats_.errors;
      return result_of(run, Code::kMemoryFault);
    }
    stats_.bytes += run.length;
    return result_of(run, Code::kOk);
  }

  uint64_t piece_bytes_;
  std::array<Entry, kEntries> queue_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  LaneStats stats_;
};

}  // namespace

std::unique_ptr<Lane> MemoryTransport::make_lane(uint32_t /*poller*/) {
  return std::make_unique<MemoryLane>(piece_bytes_);
}

}  // namespace wherry::engine
