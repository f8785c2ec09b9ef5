// ChannelCore: from a call to published records.
#include <algorithm>
#include <cstring>
#include <string>

#include "clientlib/channel_core.h"

namespace wherry::detail {
namespace {

Status not_owner() {
  return {Code::kInvalidArgument,
          "channel: wanted the thread it belongs to, got another; use a channel of this thread, or "
          "have the owner release() it first"};
}

Status blocks_only(const char* call) {
  return {Code::kUnsupported, std::string(call) +
                                  ": wanted neither layers nor a notification in the options, got "
                                  "one; those go with blocks"};
}

bool for_blocks_only(const TransferOptions& options) {
  return options.layer_begin != 0 || options.layer_end != 0 || !options.notification.empty();
}

shm::SubmitHead make_head(shm::Op op, const TransferOptions& options) {
  shm::SubmitHead head{};
  head.op = static_cast<uint8_t>(op);
  head.flags = options.checksum ? shm::kFlagChecksum : 0;
  head.priority = static_cast<uint8_t>(options.priority);
  head.required_transport = static_cast<uint8_t>(options.required_transport);
  head.deadline_ns = ChannelCore::absolute_deadline(options);
  head.layer_first = static_cast<uint16_t>(options.layer_begin);
  head.layer_end = static_cast<uint16_t>(options.layer_end);
  return head;
}

}  // namespace

uint64_t ChannelCore::absolute_deadline(const TransferOptions& options) {
  if (options.timeout_ns == 0) return options.deadline_ns;
  uint64_t deadline = 0;
  if (__builtin_add_overflow(monotonic_ns(), options.timeout_ns, &deadline)) return kForever;
  return deadline;
}

// Why there is no link to submit to.
Status ChannelCore::gone() const {
  const Code refused = refused_.load(std::memory_order_acquire);
  if (refused == Code::kOk) {
    return {Code::kEngineGone,
            "channel: wanted an attached engine, got none; the library attaches again by itself, "
            "try again or watch engine_state()"};
  }
  return {refused,
          "channel: wanted one the engine serves, got one it does not (engine_state() says why if "
          "it refused it when this client attached again); open another, or use fewer"};
}

uint64_t ChannelCore::default_deadline_ns() const {
  return link_ != nullptr ? link_->parts().default_deadline_ns : 0;
}

Status ChannelCore::ready_to_submit() {
  if (forked()) return in_a_fork();
  if (!try_own()) return not_owner();
  if (link_ == nullptr || over() || waiting_ != nullptr) drive();
  if (link_ == nullptr || link_->lost()) return gone();
  if (link_->state() == shm::ChannelState::kDraining) {
    return {Code::kDraining,
            "engine: wanted one that takes requests, got one that drains; use another or wait for "
            "its restart"};
  }
  return {};
}

Status ChannelCore::room_for(uint32_t slots) {
  Code code = blocked_ != Code::kOk ? blocked_ : link_->room(slots);
  if (code == Code::kOk) return {};
  const uint64_t life = lives_;
  drive();
  // The handles that the caller has looked up are those of the life that ended just now.
  if (link_ == nullptr || life != lives_) return gone();
  code = blocked_ != Code::kOk ? blocked_ : link_->room(slots);
  if (code == Code::kRingFull) {
    return {code,
            "submission ring: wanted " + std::to_string(slots) +
                " free slots, got fewer; try again when the engine has read on, or use the waiting "
                "form"};
  }
  if (code == Code::kNoCredit) {
    return {code, "credits: wanted " + std::to_string(slots) +
                      ", got fewer; poll or wait so that requests in flight can complete"};
  }
  return {};
}

// A request that nobody has seen; it has to be accepted or go back to the pool.
Request* ChannelCore::new_request(const shm::SubmitHead& head) {
  Request* request = pool_.take();
  request->done.store(0, std::memory_order_relaxed);
  // The caller's and, until it is done, the channel's.
  request->references.store(2, std::memory_order_relaxed);
  std::vector<FailedBlock> failed = std::move(request->completion.failed);  // for its capacity
  failed.clear();
  request->completion = Completion{};
  request->completion.failed = std::move(failed);
  request->outcome = Outcome{};
  request->records_out = 0;
  request->split = false;
  request->cancel_wanted = false;
  request->head = head;
  request->source.clear();
  request->destination.clear();
  request->next = 0;
  request->index_base = 0;
  request->notification.clear();
  request->next_waiting = nullptr;
  return request;
}

// Publishes the first record, for which there is room; from here on the request ends exactly once.
// What can come after that does: the engine reads the record meanwhile.
TransferCompleteNotification ChannelCore::accept(Request* request, const Piece& first) {
  publish(request, first);
  // The engine reads it already: nobody waits for this look at the clock.
  request->completion.submit_ns = monotonic_ns();
  if (request->split) {
    Request** last = &waiting_;
    while (*last != nullptr) last = &(*last)->next_waiting;
    *last = request;
    try {
      flush_waiting();
    } catch (...) {
      // No memory to say how some other request ends: left to the next drive().
    }
  }
  link_->ring();
  written_ = false;
  return {shared_from_this(), request};
}

uint32_t ChannelCore::max_blocks() const {
  return 1 + (link_->max_record_slots() - 1) * shm::kEntriesPerSlot;
}

void ChannelCore::publish(Request* request, const Piece& piece) {
  shm::SubmitHead head = request->head;
  head.pair_count = piece.range != nullptr ? 1 : piece.blocks;
  head.notification_bytes = static_cast<uint16_t>(piece.notification.size());
  head.slot_count = static_cast<uint16_t>(
      shm::record_slots(piece.blocks, static_cast<uint32_t>(piece.notification.size())) +
      (piece.range != nullptr ? 1 : 0));
  if (piece.source != nullptr && piece.blocks > 0) {
    head.first_pair = {piece.source[0], piece.destination[0]};
  }

  shm::RecordWriter& writer = link_->writer();
  uint32_t extension = 0;
  if (piece.range != nullptr) {
    writer.put_extension(extension++, piece.range, sizeof(*piece.range));
  } else {
    for (uint32_t at = 1; at < piece.blocks; at += shm::kEntriesPerSlot) {
      shm::BlockPair pairs[shm::kEntriesPerSlot];
      const uint32_t count = std::min(shm::kEntriesPerSlot, piece.blocks - at);
      for (uint32_t i = 0; i < count; ++i) {
        pairs[i] = {piece.source[at + i], piece.destination[at + i]};
      }
      writer.put_extension(extension++, pairs, count * sizeof(shm::BlockPair));
    }
  }
  for (size_t at = 0; at < piece.notification.size(); at += shm::kPayloadBytes) {
    const size_t count = std::min<size_t>(shm::kPayloadBytes, piece.notification.size() - at);
    writer.put_extension(extension++, piece.notification.data() + at, count);
  }

  Record record;
  record.id = link_->publish(head);
  record.request = request;
  record.first_index = piece.first_index;
  record.blocks = piece.blocks;
  record.slots = head.slot_count;
  link_->records().add(record);
  ++request->records_out;
  if (request->completion.request_id == 0) request->completion.request_id = record.id;
  written_ = true;
}

Result<TransferCompleteNotification> ChannelCore::try_transfer(
    LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
    std::span<const BlockId> destination_blocks, const TransferOptions& options) {
  if (Status status = ready_to_submit(); !status.ok()) return status;
  HandleInfo from;
  HandleInfo to;
  if (Status s = find_layout_handle(*handles_, "source", source.value, &from); !s.ok()) return s;
  if (Status s = find_layout_handle(*handles_, "destination", destination.value, &to); !s.ok()) {
    return s;
  }
  if (Status s = check_options(options, link_->max_record_slots()); !s.ok()) return s;
  if (Status s = check_transfer(from, to, source == destination, source_blocks, destination_blocks,
                                options, blocks_);
      !s.ok()) {
    return s;
  }
  if (source_blocks.empty() && options.notification.empty()) return TransferCompleteNotification();

  const auto blocks = static_cast<uint32_t>(source_blocks.size());
  Piece first{
      source_blocks.data(), destination_blocks.data(), blocks, 0, options.notification, nullptr};
  const auto notification_bytes = static_cast<uint32_t>(options.notification.size());
  const bool split = shm::record_slots(blocks, notification_bytes) > link_->max_record_slots();
  if (split) {
    first.blocks = std::min(blocks, max_blocks());
    first.notification = {};
  }
  const uint32_t slots =
      shm::record_slots(first.blocks, static_cast<uint32_t>(first.notification.size()));
  if (Status status = room_for(slots); !status.ok()) return status;

  shm::SubmitHead head = make_head(shm::Op::kTransfer, options);
  head.source = from.engine_handle;
  head.destination = to.engine_handle;
  Request* request = new_request(head);
  if (split) {
    // Everything that allocates comes before the first record is published.
    try {
      request->source.assign(source_blocks.begin() + first.blocks, source_blocks.end());
      request->destination.assign(destination_blocks.begin() + first.blocks,
                                  destination_blocks.end());
      request->notification = options.notification;
    } catch (...) {
      pool_.give_back(request);
      throw;
    }
    request->split = true;
    request->index_base = first.blocks;
    if (request->head.deadline_ns == 0) {
      // The engine's default would begin anew with each record.
      request->head.deadline_ns = monotonic_ns() + link_->parts().default_deadline_ns;
    }
  }
  return accept(request, first);
}

Result<TransferCompleteNotification> ChannelCore::try_range(const RangeOp& op,
                                                            const TransferOptions& options) {
  if (Status status = ready_to_submit(); !status.ok()) return status;
  HandleInfo from;
  HandleInfo to;
  if (Status status = check_range_op(op, &from, &to); !status.ok()) return status;
  if (Status s = check_options(options, link_->max_record_slots()); !s.ok()) return s;
  if (for_blocks_only(options)) return blocks_only("byte range");
  if (Status status = room_for(2); !status.ok()) return status;
  shm::SubmitHead head = make_head(shm::Op::kRange, options);
  head.source = from.engine_handle;
  head.destination = to.engine_handle;
  const shm::RangeEntry range{op.source_offset, op.destination_offset, op.length};
  Piece piece;
  piece.blocks = 1;
  piece.range = &range;
  return accept(new_request(head), piece);
}

Result<TransferCompleteNotification> ChannelCore::try_notify(ClientHandle target,
                                                             std::string_view bytes,
                                                             const TransferOptions& options) {
  if (Status status = ready_to_submit(); !status.ok()) return status;
  HandleInfo to;
  if (Status s = find_client_handle(*handles_, target.value, &to); !s.ok()) return s;
  if (Status s = check_options(options, link_->max_record_slots()); !s.ok()) return s;
  if (for_blocks_only(options)) return blocks_only("notify");
  if (Status s = check_notification(bytes, link_->max_record_slots()); !s.ok()) return s;
  const uint32_t slots = shm::record_slots(0, static_cast<uint32_t>(bytes.size()));
  if (Status status = room_for(slots); !status.ok()) return status;
  shm::SubmitHead head = make_head(shm::Op::kNotify, options);
  head.destination = to.engine_handle;
  Piece piece;
  piece.notification = bytes;
  return accept(new_request(head), piece);
}

Status ChannelCore::check_range_op(const RangeOp& op, HandleInfo* from, HandleInfo* to) const {
  if (Status s = find_memory_handle(*handles_, "source", op.source.value, from); !s.ok()) return s;
  if (Status s = find_memory_handle(*handles_, "destination", op.destination.value, to); !s.ok()) {
    return s;
  }
  return check_range(*from, *to, op);
}

Status ChannelCore::check(const RangeOp& op) const {
  HandleInfo from;
  HandleInfo to;
  return check_range_op(op, &from, &to);
}

// Publishes what fits of one request; false when it has to wait for space or credits.
bool ChannelCore::publish_waiting(Request* request) {
  while (request->waiting_blocks() > 0) {
    const auto blocks =
        static_cast<uint32_t>(std::min<size_t>(request->waiting_blocks(), max_blocks()));
    blocked_ = link_->room(shm::record_slots(blocks, 0));
    if (blocked_ != Code::kOk) return false;
    Piece piece;
    piece.source = request->source.data() + request->next;
    piece.destination = request->destination.data() + request->next;
    piece.blocks = blocks;
    piece.first_index = request->index_base + static_cast<uint32_t>(request->next);
    request->next += blocks;
    publish(request, piece);
  }
  if (request->notification.empty() || request->records_out > 0) return true;
  // The notification says that all the data is there: it goes alone, when that is known.
  if (request->outcome.code() != Code::kOk) {
    request->notification.clear();
    return true;
  }
  Piece piece;
  piece.notification = request->notification;
  blocked_ = link_->room(shm::record_slots(0, static_cast<uint32_t>(piece.notification.size())));
  if (blocked_ != Code::kOk) return false;
  publish(request, piece);
  request->notification.clear();
  return true;
}

void ChannelCore::flush_waiting() {
  blocked_ = Code::kOk;
  uint64_t now = 0;
  for (Request* request = waiting_; request != nullptr;) {
    Request* next = request->next_waiting;
    if (now == 0) now = monotonic_ns();
    if (now >= request->head.deadline_ns) {
      abandon_waiting(request, Code::kTimedOut);
    } else if (!publish_waiting(request)) {
      return;
    } else if (request->waiting_blocks() == 0 && request->notification.empty()) {
      unlink_waiting(request);
      settle(request);
    }
    request = next;
  }
}

void ChannelCore::unlink_waiting(Request* request) {
  for (Request** link = &waiting_; *link != nullptr; link = &(*link)->next_waiting) {
    if (*link != request) continue;
    *link = request->next_waiting;
    request->next_waiting = nullptr;
    break;
  }
  if (waiting_ == nullptr) blocked_ = Code::kOk;
}

// Ends what is not published of a request; the rest goes its way.
void ChannelCore::abandon_waiting(Request* request, Code code) {
  Record record;
  record.request = request;
  record.first_index = request->index_base + static_cast<uint32_t>(request->next);
  record.blocks = static_cast<uint32_t>(request->waiting_blocks());
  shm::CompletionHead head{};
  head.status = static_cast<uint8_t>(code);
  reserve_failed(record, head);
  unlink_waiting(request);
  const bool unsent = record.blocks > 0 || !request->notification.empty();
  request->next = request->source.size();
  request->notification.clear();
  if (!unsent) return settle(request);
  ++request->records_out;
  end_record(record, code, true);
}

}  // namespace wherry::detail
