// Notifications: from a finished request into the receiver's ring, on this poller or another one.
#include <algorithm>
#include <cstring>

#include "engine/poller/fault_point.h"
#include "engine/poller/poller_impl.h"

namespace wherry::engine {

// Sends the request's notification; its answer ends the request.
void PollerImpl::notify(Request* request) {
  Channel* channel = request->channel;
  const SessionShared* self = channel->spec->session;
  // With a transfer it goes to the other side's owner.
  const View* view = request->destination;
  if (request->op != shm::Op::kNotify && view->owner.get() == self) view = request->source;
  SessionShared* target = view->owner.get();
  if (request->op != shm::Op::kNotify && target == self)
    return notify_answered(request, Code::kInvalidArgument);
  const uint32_t poller = target->notify_poller.load(std::memory_order_acquire);
  if (poller == kNoPoller) return notify_answered(request, Code::kUnknownInstance);

  if (!request->marked) mark(request);
  PostedNotification posted;
  posted.sender_session = self->session;
  posted.target_session = target->session;
  posted.sequence =
      channel->spec->session->notifications_sent.fetch_add(1, std::memory_order_relaxed) + 1;
  posted.request_id = request->id;
  posted.sender_poller = options.index;
  posted.request = id_of(*request);
  posted.sender_rank = channel->spec->rank;
  posted.name_bytes = static_cast<uint16_t>(channel->spec->instance.size());
  posted.message_bytes = request->notification_bytes;
  std::memcpy(posted.bytes.data(), channel->spec->instance.data(), posted.name_bytes);
  std::byte* out = posted.bytes.data() + posted.name_bytes;
  uint32_t left = request->notification_bytes;
  for (uint32_t chunk = request->notification_chunk; left != 0;
       chunk = channel->chunks[chunk].next) {
    const uint32_t part = std::min(left, shm::kPayloadBytes);
    std::memcpy(out, channel->chunks[chunk].payload.data(), part);
    out += part;
    left -= part;
  }
  if (poller == options.index) return notify_answered(request, deliver(posted));
  if (notifies_out_[poller] == kInboxSlots) return notify_answered(request, Code::kBoxFull);
  ++notifies_out_[poller];
  send_to(poller, posted);
}

void PollerImpl::send_to(uint32_t poller, const PostedNotification& posted) {
  PollerImpl* other = siblings[poller];
  // There is room: at most kInboxSlots notifications of ours, and as many answers, are on their
  // way.
  other->inbox->try_enqueue(*outboxes[poller], posted);
  other->inbox_sent.fetch_add(1, std::memory_order_release);
  other->wake_if_asleep();
}

void PollerImpl::notify_answered(Request* request, Code code) {
  if (request->code == Code::kOk) request->code = code;
  complete(request);
}

Channel* PollerImpl::notification_channel(uint64_t session) const {
  for (Channel* channel : channels_) {
    if (channel != nullptr && channel->spec->session->session == session &&
        channel->spec->sizes.notification_slots != 0 && channel->state == Channel::State::kActive) {
      return channel;
    }
  }
  return nullptr;
}

// Puts a notification into its receiver's ring.
Code PollerImpl::deliver(const PostedNotification& posted) {
  Channel* channel = notification_channel(posted.target_session);
  if (channel == nullptr) return Code::kStale;
  const uint32_t bytes = uint32_t{posted.name_bytes} + posted.message_bytes;
  const uint32_t slots = shm::record_slots(0, bytes);
  const char* violation = nullptr;
  if (!channel->notification_room(slots, &violation)) {
    if (violation != nullptr) violate(channel, violation);
    return Code::kBoxFull;
  }
  for (uint32_t i = 0; i + 1 < slots; ++i) {
    const uint32_t at = i * shm::kPayloadBytes;
    channel->notifications.put_extension(i, posted.bytes.data() + at,
                                         std::min(bytes - at, shm::kPayloadBytes));
  }
  shm::NotificationHead head{};
  head.sequence = posted.sequence;
  head.sender_session = posted.sender_session;
  head.sender_rank = posted.sender_rank;
  head.slot_count = static_cast<uint16_t>(slots);
  head.name_bytes = posted.name_bytes;
  head.message_bytes = posted.message_bytes;
  channel->notifications.publish(&head, slots);
  WHERRY_FAULT_POINT(kDelivered, nullptr);
  mark_dirty(channel);
  channel->spec->stats->notifications.add(1);
  channel->counters->notifications.add(1);
  options.stats->notifications.add(1);
  return Code::kOk;
}

uint32_t PollerImpl::take_inbox() {
  uint32_t taken = 0;
  if (inbox_sent.load(std::memory_order_acquire) == inbox_taken_) return 0;
  for (PostedNotification posted; taken < kInboxSlots && inbox->try_dequeue(posted); ++taken) {
    ++inbox_taken_;
    if (posted.is_answer) {
      --notifies_out_[posted.answering_poller];
      Channel* channel = channels_[posted.request >> kRequestBits];
      if (channel == nullptr) continue;
      Request* request = request_of(posted.request);
      if (request->state == Request::State::kNotifying && request->id == posted.request_id) {
        notify_answered(request, posted.code);
      }
      continue;
    }
    PostedNotification answer = posted;
    answer.is_answer = true;
    answer.code = deliver(posted);
    answer.answering_poller = options.index;
    send_to(posted.sender_poller, answer);
  }
  return taken;
}

}  // namespace wherry::engine
