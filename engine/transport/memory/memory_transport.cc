#include "engine/transport/memory/memory_transport.h"

#include <algorithm>
#include <array>

#include "engine/transport/memory/copy.h"
#include "engine/transport/memory/recently_written.h"

namespace wherry::engine {
namespace {

CopyPiece piece_of(const Run& run) {
  return {run.destination->base + run.destination_offset, run.source->base + run.source_offset,
          run.length};
}

class MemoryLane final : public Lane {
 public:
  explicit MemoryLane(uint64_t piece_bytes) : piece_bytes_(piece_bytes) {}

  uint32_t room() const override { return kEntries - count(); }
  // One piece is being copied while the next one waits.
  uint64_t window_bytes() const override { return 2 * piece_bytes_; }
  // A piece is made of several runs, so that they can be copied side by side.
  uint64_t max_run_bytes() const override { return std::max<uint64_t>(piece_bytes_ / kStreams, 1); }

  void post(const Run* runs, uint32_t count) override {
    for (uint32_t i = 0; i < count; ++i) queue_[tail_++ % kEntries] = {runs[i], false};
    ++stats_.batches;
  }

  uint32_t poll(RunResult* results, uint32_t capacity) override {
    uint64_t copied = 0;
    uint32_t filled = 0;
    bool streamed = false;
    while (filled < capacity && head_ != tail_ && copied < piece_bytes_) {
      if (const uint32_t begun = stream(std::min(capacity - filled, kStreams), &copied)) {
        streamed = true;
        for (uint32_t i = 0; i < begun; ++i) results[filled++] = copied_result(take().run);
        continue;
      }
      const Entry& entry = take();
      if (entry.dropped) {
        results[filled++] = result_of(entry.run, Code::kCancelled);
        continue;
      }
      const CopyPiece piece = piece_of(entry.run);
      copy_cached(piece);
      if (entry.run.streaming) recent_.note(piece.to, piece.bytes);
      copied += piece.bytes;
      results[filled++] = copied_result(entry.run);
    }
    if (streamed) fence_streaming();
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
  const Entry& take() { return queue_[head_++ % kEntries]; }

  // Copies up to `most` runs from the head of the queue past the caches, side by side; how many.
  // They stay in the queue.
  uint32_t stream(uint32_t most, uint64_t* copied) {
    CopyPiece pieces[kStreams];
    uint32_t begun = 0;
    while (begun < most && head_ + begun != tail_ && *copied < piece_bytes_) {
      const Entry& entry = queue_[(head_ + begun) % kEntries];
      if (entry.dropped || !entry.run.streaming) break;
      pieces[begun] = piece_of(entry.run);
      if (recent_.contains(pieces[begun].to)) break;
      recent_.note(pieces[begun].to, pieces[begun].bytes);
      *copied += pieces[begun].bytes;
      ++begun;
    }
    if (begun != 0) copy_streaming(pieces, begun);
    return begun;
  }

  static RunResult result_of(const Run& run, Code code) {
    RunResult result;
    result.request = run.request;
    result.first_pair = run.first_pair;
    result.pair_count = run.pair_count;
    result.bytes = run.length;
    result.code = code;
    return result;
  }

  RunResult copied_result(const Run& run) {
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
  RecentlyWritten recent_;
  LaneStats stats_;
};

}  // namespace

std::unique_ptr<Lane> MemoryTransport::make_lane(uint32_t /*poller*/) {
  return std::make_unique<MemoryLane>(piece_bytes_);
}

}  // namespace wherry::engine
