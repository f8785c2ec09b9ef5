#include "engine/transport/memory/memory_lane.h"

#include <algorithm>

#include "engine/transport/memory/copy.h"

namespace wherry::engine {
namespace {

// Less is copied sooner than another core has heard of it.
constexpr uint64_t kWorthHandingOut = 32768;
// A run this long is not begun while results wait to be seen.
constexpr uint64_t kLongRun = 65536;
constexpr uint64_t kPartAlign = 4096;  // of the parts of a run that is copied in several

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

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

void MemoryLane::post(const Run* runs, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) queue_[tail_++ % kEntries] = {runs[i], false};
  ++stats_.batches;
}

uint32_t MemoryLane::poll(RunResult* results, uint32_t capacity) {
  uint32_t filled = helped_ == 0 ? 0 : collect(results, capacity);
  if (!helpers_.empty()) hand_out();
  uint64_t copied = 0;  // as many cold bytes would take as long
  bool streamed = false;
  while (filled < capacity && head_ != tail_ && copied < piece_bytes_) {
    const Entry& entry = queue_[head_ % kEntries];
    if (entry.dropped) {
      results[filled++] = result_of(take().run, Code::kCancelled);
      continue;
    }
    const bool cold = is_cold(entry);
    const uint64_t cost = cold ? entry.run.length : entry.run.length / kCachedPerCold;
    if (filled != 0 && cost >= kLongRun) break;
    if (cold) {
      const Batch batch = cold_batch(std::min(capacity - filled, kStreams));
      copy_streaming(batch.job.pieces.data(), batch.job.count);
      streamed = true;
      copied += batch.bytes;
      for (uint32_t i = 0; i < batch.runs; ++i) results[filled++] = copied_result(take().run);
      continue;
    }
    const CopyPiece piece = piece_of(entry.run);
    copy_cached(piece);
    if (entry.run.streaming) recent_.note(piece.to, piece.bytes);
    copied += cost;
    results[filled++] = copied_result(take().run);
  }
  if (streamed) fence_streaming();
  if (streamed) {
    all_cached_ = false;
  } else if (copied >= piece_bytes_ / 2) {  // a small one says nothing of those behind it
    all_cached_ = true;
  }
  return filled;
}

void MemoryLane::abort(uint32_t request) {
  for (uint32_t at = head_; at != tail_; ++at) {
    Entry& entry = queue_[at % kEntries];
    if (entry.run.request == request) entry.dropped = true;
  }
}

bool MemoryLane::is_cold(const Entry& entry) const {
  return !entry.dropped && entry.run.streaming && !recent_.contains(piece_of(entry.run).to);
}

// Up to `most` cold runs from the head of the queue, where they stay. At least the first is cold.
MemoryLane::Batch MemoryLane::cold_batch(uint32_t most) {
  Batch batch;
  std::array<CopyPiece, kStreams> runs;
  do {
    const CopyPiece run = piece_of(queue_[(head_ + batch.runs) % kEntries].run);
    recent_.note(run.to, run.bytes);
    runs[batch.runs++] = run;
    batch.bytes += run.bytes;
  } while (batch.runs < most && head_ + batch.runs != tail_ && batch.bytes < piece_bytes_ &&
           is_cold(queue_[(head_ + batch.runs) % kEntries]));
  // One or two fill all streams in parts.
  const uint32_t parts = kStreams / batch.runs;
  for (uint32_t i = 0; i < batch.runs; ++i) {
    const uint64_t part = round_up(round_up(runs[i].bytes, parts) / parts, kPartAlign);
    for (uint64_t at = 0; at < runs[i].bytes; at += part) {
      batch.job.pieces[batch.job.count++] = {runs[i].to + at, runs[i].from + at,
                                             std::min(part, runs[i].bytes - at)};
    }
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
    while (helper.given - helper.collected < CopyThread::kMaxJobs && worth_handing_out()) {
      const Batch batch = cold_batch(kStreams);
      Helper::Runs& runs = helper.jobs[helper.given % CopyThread::kMaxJobs];
      for (runs.count = 0; runs.count < batch.runs; ++runs.count) {
        runs.runs[runs.count] = take().run;
      }
      helper.thread->give(batch.job);
      ++helper.given;
      ++helped_;
    }
  }
}

// Whether cold runs come next, more than the poller had better copy alone.
bool MemoryLane::worth_handing_out() const {
  uint64_t waiting = 0;
  for (uint32_t at = head_; at != tail_ && waiting < kWorthHandingOut; ++at) {
    if (!is_cold(queue_[at % kEntries])) return false;
    waiting += queue_[at % kEntries].run.length;
  }
  return waiting >= kWorthHandingOut;
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
