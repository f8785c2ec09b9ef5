#include "engine/transport/memory/memory_lane.h"

#include <algorithm>

#include "engine/transport/memory/copy.h"

namespace wherry::engine {
namespace {

// Less is copied sooner than another core has heard of it.
constexpr uint64_t kWorthHandingOut = 16384;

CopyPiece piece_of(const Run& run) {
  return {run.destination->base + run.destination_offset, run.source->base + run.source_offset,
          run.length};
}

RunResult result_of(const Run& run, Code code) {
  RunResult result;
  result.request = run.request;
  result.first_pair = run.first_pair;
  result.pair_count = run.pair_count;
  result.bytes = run.length;
  result.code = code;
  return result;
}

}  // namespace

MemoryLane::MemoryLane(uint64_t piece_bytes, std::span<const std::unique_ptr<CopyThread>> copiers)
    : piece_bytes_(piece_bytes), helpers_(copiers.size()) {
  for (size_t i = 0; i < copiers.size(); ++i) helpers_[i].thread = copiers[i].get();
}

// A piece is made of several runs, so that they can be copied side by side.
uint64_t MemoryLane::max_run_bytes() const {
  return std::max<uint64_t>(piece_bytes_ / kStreams, 1);
}

void MemoryLane::post(const Run* runs, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) queue_[tail_++ % kEntries] = {runs[i], false};
  ++stats_.batches;
}

uint32_t MemoryLane::poll(RunResult* results, uint32_t capacity) {
  uint32_t filled = helped_ == 0 ? 0 : collect(results, capacity);
  if (!helpers_.empty()) hand_out();
  uint64_t copied = 0;
  bool streamed = false;
  while (filled < capacity && head_ != tail_ && copied < piece_bytes_) {
    const Batch batch = cold_batch(std::min(capacity - filled, kStreams));
    if (batch.count != 0) {
      copy_streaming(batch.pieces.data(), batch.count);
      streamed = true;
      copied += batch.bytes;
      for (uint32_t i = 0; i < batch.count; ++i) results[filled++] = copied_result(take().run);
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

void MemoryLane::abort(uint32_t request) {
  for (uint32_t at = head_; at != tail_; ++at) {
    Entry& entry = queue_[at % kEntries];
    if (entry.run.request == request) entry.dropped = true;
  }
}

// Up to `most` cold runs from the head of the queue, where they stay. None when a warm or a dropped
// one comes first.
MemoryLane::Batch MemoryLane::cold_batch(uint32_t most) {
  Batch batch;
  while (batch.count < most && head_ + batch.count != tail_ && batch.bytes < piece_bytes_) {
    const Entry& entry = queue_[(head_ + batch.count) % kEntries];
    if (entry.dropped || !entry.run.streaming) break;
    const CopyPiece piece = piece_of(entry.run);
    if (recent_.contains(piece.to)) break;
    recent_.note(piece.to, piece.bytes);
    batch.pieces[batch.count++] = piece;
    batch.bytes += piece.bytes;
  }
  return batch;
}

// Results of what the copy threads have done, as far as they fit.
uint32_t MemoryLane::collect(RunResult* results, uint32_t capacity) {
  uint32_t filled = 0;
  for (Helper& helper : helpers_) {
    const uint32_t done = helper.thread->done();
    while (helper.collected != done) {
      const Helper::Runs& job = helper.jobs[helper.collected % CopyThread::kMaxJobs];
      if (filled + job.count > capacity) return filled;
      for (uint32_t i = 0; i < job.count; ++i) results[filled++] = copied_result(job.runs[i]);
      ++helper.collected;
      --helped_;
    }
  }
  return filled;
}

// Gives cold runs to copy threads that have room; the poller copies what is left.
void MemoryLane::hand_out() {
  for (Helper& helper : helpers_) {
    while (helper.given - helper.collected < CopyThread::kMaxJobs && head_ != tail_) {
      uint64_t waiting = 0;
      for (uint32_t at = head_; at != tail_ && waiting < 2 * kWorthHandingOut; ++at) {
        waiting += queue_[at % kEntries].run.length;
      }
      if (waiting < 2 * kWorthHandingOut) return;  // the poller can do that alone
      const Batch batch = cold_batch(kStreams);
      if (batch.count == 0) return;
      Helper::Runs& job = helper.jobs[helper.given % CopyThread::kMaxJobs];
      for (job.count = 0; job.count < batch.count; ++job.count) job.runs[job.count] = take().run;
      helper.thread->give({batch.pieces, batch.count});
      ++helper.given;
      ++helped_;
    }
  }
}

RunResult MemoryLane::copied_result(const Run& run) {
  ++stats_.runs;
  // The SIGBUS handler has put other memory under a mapping that lost pages: what was copied means
  // nothing then. relaxed: the handler ran before the copy was done.
  if (run.source->broken.load(std::memory_order_relaxed) ||
      run.destination->broken.load(std::memory_order_relaxed)) {
    ++stats_.errors;
    return result_of(run, Code::kMemoryFault);
  }
  stats_.bytes += run.length;
  return result_of(run, Code::kOk);
}

}  // namespace wherry::engine
