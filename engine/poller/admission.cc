// Records in: copied out of the ring, checked, and turned into requests.
#include <cstring>

#include "engine/poller/fault_point.h"
#include "engine/poller/poller_impl.h"
#include "engine/poller/runs.h"

namespace wherry::engine {
namespace {

// A time of the client's clock in ours. Never wraps: "for ever" stays for ever.
uint64_t engine_time(uint64_t client_ns, int64_t clock_offset_ns) {
  const uint64_t offset = static_cast<uint64_t>(clock_offset_ns);
  uint64_t result = 0;
  if (clock_offset_ns >= 0) return __builtin_sub_overflow(client_ns, offset, &result) ? 0 : result;
  return __builtin_add_overflow(client_ns, 0 - offset, &result) ? UINT64_MAX : result;
}

}  // namespace

uint32_t PollerImpl::admit_records(Channel* channel) {
  uint32_t admitted = 0;
  while (admitted < kRecordsPerVisit && channel->state == Channel::State::kActive &&
         channel->submissions.ready()) {
    if (const char* violation = admit(channel); violation != nullptr) {
      violate(channel, violation);
      break;
    }
    ++admitted;
    if (channel->publish_head(false)) mark_dirty(channel);
  }
  // Found empty: let the client know now, it may be waiting for the last slots.
  if (admitted < kRecordsPerVisit) channel->publish_head(true);
  return admitted;
}

// One record. Returns what breaks the contract, or null.
const char* PollerImpl::admit(Channel* channel) {
  shm::SubmitHead head;
  channel->submissions.copy_head(&head);
  const char* violation = check_record(head, channel->spec->sizes.max_record_slots());
  if (violation != nullptr) return violation;
  if (!channel->take_credits(head.slot_count, &violation)) return violation;

  Request* request = channel->take_request();
  ++live_;
  request->id = channel->submissions.position() + 1;
  request->op = static_cast<shm::Op>(head.op);
  request->priority = head.priority;
  request->slot_count = head.slot_count;
  request->pair_count = head.pair_count;
  request->notification_bytes = head.notification_bytes;
  request->admitted_ns = now_;
  request->start_ns = now_;
  request->deadline_ns = head.deadline_ns == 0
                             ? now_ + options.default_deadline_ns
                             : engine_time(head.deadline_ns, channel->spec->clock_offset_ns);

  // Copy everything out before any of it is looked at.
  shm::RangeEntry range{};
  uint32_t extension = 0;
  if (request->op == shm::Op::kRange) {
    channel->submissions.copy_extension(extension++, &range, sizeof(range));
  } else {
    request->first_pair = head.first_pair;
  }
  const auto copy_chain = [&](uint32_t slots) {
    uint32_t first = kNone;
    uint32_t last = kNone;
    for (uint32_t i = 0; i < slots; ++i) {
      const uint32_t chunk = channel->chunks.take();
      channel->submissions.copy_extension(extension++, channel->chunks[chunk].payload.data(),
                                          shm::kPayloadBytes);
      (last == kNone ? first : channel->chunks[last].next) = chunk;
      last = chunk;
    }
    return first;
  };
  if (request->op == shm::Op::kTransfer)
    request->first_chunk = copy_chain(shm::record_slots(head.pair_count, 0) - 1);
  request->notification_chunk = copy_chain(head.slot_count - 1 - extension);
  channel->submissions.consume(head.slot_count);

  options.stats->records.add(1);
  options.stats->pairs.add(head.pair_count);
  channel->spec->stats->requests.add(1);
  channel->spec->stats->pairs.add(head.pair_count);
  channel->counters->requests.add(1);
  channel->counters->pairs.add(head.pair_count);

  Verdict verdict;
  if (draining_) {
    verdict.code = Code::kDraining;
  } else {
    // Read once: the table stays whole until the end of this turn, whatever control publishes
    // meanwhile.
    const ClientTable& table = *channel->spec->session->table.load(std::memory_order_acquire);
    switch (request->op) {
      case shm::Op::kTransfer:
        verdict = validate_transfer(*request, head, table, channel->chunks, plans_, scratch_);
        break;
      case shm::Op::kRange:
        verdict = validate_range(*request, head, range, table);
        break;
      case shm::Op::kNotify:
        verdict = validate_notify(*request, head, table);
        break;
    }
  }
  if (verdict.code == Code::kOk) verdict.code = choose_transport(request, head.required_transport);
  if (verdict.code == Code::kOk && head.flags != 0) verdict.code = Code::kUnsupported;
  start(request, verdict);
  return nullptr;
}

Code PollerImpl::choose_transport(Request* request, uint8_t required) {
  if (request->op == shm::Op::kNotify) return required == 0 ? Code::kOk : Code::kUnsupported;
  if (required >= kTransportIds) return Code::kInvalidArgument;
  // `null` moves nothing, so it is only taken by name.
  const uint8_t wanted = required == 0 ? static_cast<uint8_t>(TransportId::kMemory) : required;
  if (lanes_[wanted].lane == nullptr) return Code::kNoTransport;
  request->transport = static_cast<TransportId>(wanted);
  return Code::kOk;
}

// Queues a request that passed; answers all others at once.
void PollerImpl::start(Request* request, const Verdict& verdict) {
  if (verdict.code != Code::kOk) return refuse(request, verdict);
  if (request->deadline_ns <= now_) return refuse(request, {Code::kTimedOut});
  hold_views(*request, 1);
  start_runs(*request);
  if (runs_exhausted(*request)) {
    request->transport = TransportId::kNone;
    return finish(request);
  }
  request->state = Request::State::kQueued;
  request->channel->deadlines.push(request);
  scheduler_.push(request->channel->flow, request);
  WHERRY_FAULT_POINT(kQueued, request);
}

// One cancel a turn and channel: finding a request by its id walks the pool.
uint32_t PollerImpl::take_cancels(Channel* channel) {
  const char* violation = nullptr;
  const uint64_t id = channel->take_cancel(&violation);
  if (violation != nullptr) {
    violate(channel, violation);
    return 1;
  }
  if (id == 0) return 0;
  for (Request& request : channel->requests) {
    if (request.state == Request::State::kFree || request.id != id) continue;
    channel->spec->stats->cancels.add(1);
    end_early(&request, Code::kCancelled);
    break;
  }
  return 1;
}

uint32_t PollerImpl::expire_deadlines(Channel* channel) {
  uint32_t expired = 0;
  while (!channel->deadlines.empty() && channel->deadlines.first()->deadline_ns <= now_) {
    channel->spec->stats->deadline_misses.add(1);
    end_early(channel->deadlines.first(), Code::kTimedOut);
    ++expired;
  }
  return expired;
}

void PollerImpl::violate(Channel* channel, const char* reason) {
  channel->state = Channel::State::kBroken;
  channel->spec->stats->violations.add(1);
  options.stats->violations.add(1);
  report(Report::Kind::kViolation, channel->spec, reason);
}

}  // namespace wherry::engine
