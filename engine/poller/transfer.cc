// Runs out, results back, and completions: the middle and the end of a request.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/poller/fault_point.h"
#include "engine/poller/poller_impl.h"
#include "engine/poller/runs.h"

namespace wherry::engine {
namespace {

// Collects the failed pairs of a request into completion slots, in the order of their index.
class FailedWriter {
 public:
  FailedWriter(shm::RecordWriter& writer, shm::CompletionHead& head)
      : writer_(writer), head_(head) {}

  void add(uint32_t pair, shm::BlockPair mark) {
    shm::FailedEntry entry;
    entry.pair = pair;
    entry.status = static_cast<uint8_t>(mark.destination);
    entry.wc_status = static_cast<uint8_t>(mark.destination >> 8);
    entry.error_number = static_cast<uint16_t>(mark.destination >> 16);
    if (count_++ == 0) {
      head_.first_failed = entry;
      return;
    }
    entries_[filled_++] = entry;
    if (filled_ == shm::kEntriesPerSlot) flush();
  }

  uint32_t finish() {
    if (filled_ != 0) flush();
    return count_;
  }

 private:
  void flush() {
    writer_.put_extension(slots_++, entries_, sizeof(entries_[0]) * filled_);
    filled_ = 0;
  }

  shm::RecordWriter& writer_;
  shm::CompletionHead& head_;
  shm::FailedEntry entries_[shm::kEntriesPerSlot] = {};
  uint32_t filled_ = 0;
  uint32_t slots_ = 0;
  uint32_t count_ = 0;
};

}  // namespace

Request* PollerImpl::request_of(uint32_t id) const {
  return &channels_[id >> kRequestBits]->requests[id & ((1u << kRequestBits) - 1)];
}

void PollerImpl::hold_views(const Request& request, int change) {
  for (const View* view : {request.source, request.destination}) {
    if (view == nullptr) continue;
    std::atomic<uint32_t>& uses = view->uses[options.index].value;
    // One writer. Release on the way down: control frees the view after it has seen zero.
    uses.store(uses.load(std::memory_order_relaxed) + static_cast<uint32_t>(change),
               std::memory_order_release);
  }
}

// From here on its outcome is unknown to the client should we die.
void PollerImpl::mark(Request* request) {
  request->channel->inflight.mark(request->slot, request->id);
  request->marked = true;
  WHERRY_FAULT_POINT(kMarked, request);
}

uint32_t PollerImpl::schedule() {
  if (scheduler_.empty()) return 0;
  Run* const runs = runs_.data();
  uint32_t count = 0;
  uint32_t total = 0;
  LaneSlot* lane = nullptr;
  uint64_t window = 0;
  uint32_t room = 0;
  for (;;) {
    const Scheduler::Turn turn = scheduler_.next();
    if (turn.flow == nullptr) break;
    Request* request = turn.request;
    LaneSlot* wanted = &lanes_[static_cast<uint8_t>(request->transport)];
    if (wanted != lane) {
      if (count != 0) post(*lane, runs, std::exchange(count, 0));
      lane = wanted;
      const uint64_t limit = lane->lane->window_bytes();
      window = limit > lane->posted_bytes ? limit - lane->posted_bytes : 0;
      room = lane->lane->room();
    }
    if (room == 0 || window == 0) break;
    if (!request->marked) {
      mark(request);
      request->state = Request::State::kPosted;
      request->start_ns = now_;
    }
    const uint64_t max_run = lane->lane->max_run_bytes();
    // Pools larger than any cache: their blocks are cold, and the copies will not be read soon.
    const bool streaming =
        std::min(request->source->total_bytes, request->destination->total_bytes) >=
        options.streaming_from_bytes;
    int64_t left = turn.bytes;
    bool exhausted = false;
    while (!exhausted && left > 0 && room != 0 && window != 0) {
      // Made in place: a copy would wait for the narrow stores that filled it in.
      Run& run = *new (&runs[count++]) Run(next_run(*request, request->channel->chunks, max_run));
      run.request = id_of(*request);
      run.streaming = streaming;
      ++request->runs_out;
      --room;
      window -= std::min(window, run.length);
      left -= static_cast<int64_t>(run.length);
      scheduler_.charge(turn, run.length);
      exhausted = runs_exhausted(*request);
      if (count == kRunsPerPost) post(*lane, runs, std::exchange(count, 0));
      ++total;
    }
    scheduler_.done(turn, exhausted);
  }
  if (count != 0) post(*lane, runs, count);
  return total;
}

void PollerImpl::post(LaneSlot& lane, Run* runs, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) lane.posted_bytes += runs[i].length;
  lane.lane->post(runs, count);
  WHERRY_FAULT_POINT(kPosted, nullptr);
  options.stats->runs.add(count);
  options.stats->batches.add(1);
}

uint32_t PollerImpl::poll_lanes() {
  uint32_t results_total = 0;
  RunResult* const results = results_.data();
  for (LaneSlot& slot : lanes_) {
    if (slot.lane == nullptr || !slot.lane->busy()) continue;
    const uint32_t count = slot.lane->poll(results, kResultsPerPoll);
    uint64_t moved = 0;
    for (uint32_t i = 0; i < count; ++i) moved += results[i].bytes;
    // Completions carry the time they were seen; a few bytes take no time worth a look.
    if (moved >= kWorthAClock) {
      now_ = clock();
      just_looked_ = true;
    }
    for (uint32_t i = 0; i < count; ++i) {
      slot.posted_bytes -= results[i].bytes;
      take_result(results[i]);
    }
    results_total += count + 1;  // a busy lane is work, whether or not a run ended
  }
  return results_total;
}

void PollerImpl::take_result(const RunResult& result) {
  Request* request = request_of(result.request);
  --request->runs_out;
  WHERRY_FAULT_POINT(kCopied, request);
  if (result.code == Code::kOk) {
    request->bytes += result.bytes;
  } else {
    Code code = result.code;
    if (code == Code::kCancelled && request->ended_early) {
      code = request->code;  // dropped by our own abort: the cause is what ended the request
    } else if (request->code == Code::kOk) {
      request->code = code;
      request->wc_status = result.wc_status;
      request->error_number = result.error_number;
      request->vendor_error = result.vendor_error;
    }
    request->failed_pairs +=
        mark_failed(*request, request->channel->chunks, result.first_pair, result.pair_count,
                    failed_mark(code, result.wc_status, result.error_number));
  }
  if (request->runs_out == 0 && runs_exhausted(*request)) finish(request);
}

// Deadline, cancel or close: what has not been posted is dropped, what has been is awaited.
void PollerImpl::end_early(Request* request, Code code) {
  Channel* channel = request->channel;
  channel->deadlines.remove(request);
  if (request->state == Request::State::kNotifying) {
    // Its data has arrived and the receiver's answer is on its way; only a stop gives up on that.
    if (stopping_) notify_answered(request, code);
    return;
  }
  if (request->ended_early) return;
  if (request->code == Code::kOk) request->code = code;
  if (!runs_exhausted(*request)) {
    scheduler_.remove(channel->flow, request);
    const uint32_t first = first_unfinished_pair(*request);
    request->failed_pairs +=
        mark_failed(*request, channel->chunks, first, request->pair_count - first,
                    failed_mark(request->code, 0, 0));
  }
  request->ended_early = true;
  if (request->runs_out != 0) {
    lanes_[static_cast<uint8_t>(request->transport)].lane->abort(id_of(*request));
    return;  // its runs come back through poll()
  }
  finish(request);
}

// Every run has drained. A notification goes out behind the data; then the request is complete.
void PollerImpl::finish(Request* request) {
  request->channel->deadlines.remove(request);
  if (request->code == Code::kOk && touched_broken_memory(*request)) {
    request->code = Code::kMemoryFault;
    request->failed_pairs += mark_failed(*request, request->channel->chunks, 0, request->pair_count,
                                         failed_mark(Code::kMemoryFault, 0, 0));
  }
  if (request->code == Code::kMemoryFault && !request->channel->reported_fault) {
    request->channel->reported_fault = true;
    report(Report::Kind::kRegionBroken, request->channel->spec,
           "pages of a region were taken away during a transfer");
  }
  if (request->code == Code::kOk && request->notification_bytes != 0) {
    request->state = Request::State::kNotifying;
    return notify(request);
  }
  complete(request);
}

bool PollerImpl::touched_broken_memory(const Request& request) const {
  if (request.op == shm::Op::kNotify) return false;
  for (const View* view : {request.source, request.destination}) {
    for (const auto& mapping : view->mappings) {
      if (mapping->broken.load(std::memory_order_relaxed)) return true;
    }
  }
  return false;
}

// Publishes the outcome of a request that passed validation.
void PollerImpl::complete(Request* request) {
  Channel* channel = request->channel;
  shm::CompletionHead head{};
  if (request->failed_pairs != 0 && request->marked) {
    FailedWriter failed(channel->completions, head);
    PairChunk* chunk = nullptr;
    for (uint32_t i = 0; i < request->pair_count; ++i) {
      const uint32_t in_chunk = i == 0 ? 0 : (i - 1) % shm::kEntriesPerSlot;
      if (i != 0 && in_chunk == 0)
        chunk = &channel->chunks[chunk == nullptr ? request->first_chunk : chunk->next];
      const shm::BlockPair pair =
          i == 0 ? request->first_pair
                 : reinterpret_cast<const shm::BlockPair*>(chunk->payload.data())[in_chunk];
      if ((pair.source & kFailedBit) != 0) failed.add(i, pair);
    }
    head.failed_count = failed.finish();
  }
  hold_views(*request, -1);
  publish(request, head);
}

// Answers a request that was never started: the failed list names the pair to blame, if one is.
void PollerImpl::refuse(Request* request, const Verdict& verdict) {
  request->code = verdict.code;
  request->transport = TransportId::kNone;
  shm::CompletionHead head{};
  if (verdict.pair != kNone) {
    head.failed_count = 1;
    head.first_failed = {verdict.pair, static_cast<uint8_t>(verdict.code), 0, 0};
  }
  publish(request, head);
}

void PollerImpl::publish(Request* request, shm::CompletionHead& head) {
  Channel* channel = request->channel;
  head.request_id = request->id;
  head.bytes = request->bytes;
  head.start_ns = request->start_ns;
  head.end_ns = now_;
  head.vendor_error = request->vendor_error;
  head.status = static_cast<uint8_t>(request->code);
  head.wc_status = request->wc_status;
  head.error_number = request->error_number;
  head.transport = request->marked ? static_cast<uint8_t>(request->transport) : 0;
  // Every run has drained and both ends are on this host: nobody touches either buffer any more.
  head.quiet = shm::kLocalQuiet | shm::kRemoteQuiet;
  const uint32_t slots = shm::completion_slots(head.failed_count);
  WHERRY_FAULT_POINT(kDrained, request);
  channel->completions.publish(&head, slots);
  WHERRY_FAULT_POINT(kPublished, request);
  // Only now: a word that is gone without a completion would read NOT_STARTED after our death.
  if (request->marked) channel->inflight.clear(request->slot);
  WHERRY_FAULT_POINT(kCleared, request);
  channel->settle_credits(request->slot_count, slots);
  mark_dirty(channel);

  const uint64_t failed = request->code == Code::kOk ? 0 : 1;
  channel->spec->stats->completed.add(1);
  channel->spec->stats->failed.add(failed);
  channel->spec->stats->bytes.add(request->bytes);
  channel->counters->completed.add(1);
  channel->counters->failed.add(failed);
  channel->counters->bytes.add(request->bytes);
  options.stats->completed[head.transport][head.status].add(1);
  options.stats->bytes[head.transport].add(request->bytes);
  if (request->marked && request->transport != TransportId::kNone) {
    options.stats->queue_ns.record(request->start_ns - request->admitted_ns);
  }
  options.stats->latency_ns.record(now_ - request->admitted_ns);
  channel->give_back(request);
  --live_;
}

}  // namespace wherry::engine
