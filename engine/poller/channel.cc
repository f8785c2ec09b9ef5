#include "engine/poller/channel.h"

namespace wherry::engine {

Channel::Channel(ChannelSpec* channel_spec)
    : spec(channel_spec),
      client(spec->c2e.at<const shm::ClientWords>(spec->c2e_header.words_offset)),
      words(spec->e2c.at<shm::EngineWords>(spec->e2c_header.words_offset)),
      counters(spec->e2c.at<shm::ChannelCounters>(spec->e2c_header.counters_offset)),
      submissions(spec->c2e.at<const shm::Slot>(spec->c2e_header.submission_offset),
                  spec->sizes.submission_slots),
      completions(spec->e2c.at<shm::Slot>(spec->e2c_header.completion_offset),
                  spec->sizes.completion_slots()),
      inflight(spec->e2c.at<std::atomic<uint64_t>>(spec->e2c_header.inflight_offset)),
      requests(spec->sizes.completion_slots()),
      chunks(spec->sizes.completion_slots()) {
  if (spec->sizes.notification_slots != 0) {
    notifications = shm::RecordWriter(spec->e2c.at<shm::Slot>(spec->e2c_header.notification_offset),
                                      spec->sizes.notification_slots);
  }
  for (uint32_t i = static_cast<uint32_t>(requests.size()); i-- > 0;) {
    requests[i].slot = i;
    requests[i].channel = this;
    requests[i].next = free_;
    free_ = &requests[i];
  }
  deadlines.reserve(requests.size());
}

Request* Channel::take_request() {
  Request* request = free_;
  free_ = request->next;
  request->next = nullptr;
  ++live;
  return request;
}

void Channel::give_back(Request* request) {
  chunks.give_back(request->first_chunk);
  chunks.give_back(request->notification_chunk);
  const uint32_t index = request->slot;
  *request = Request{};
  request->slot = index;
  request->channel = this;
  request->next = free_;
  free_ = request;
  --live;
}

bool Channel::take_credits(uint32_t slots, const char** violation) {
  const uint64_t capacity = spec->sizes.completion_slots();
  const auto used = [this] { return inflight_slots_ + (unreaped_end_ - reap_seen_); };
  if (used() + slots > capacity) {
    const uint64_t cursor = client->reap_cursor.load(std::memory_order_acquire);
    if (cursor < reap_seen_ || cursor > unreaped_end_) {
      *violation = "reap cursor outside what was published";
      return false;
    }
    reap_seen_ = cursor;
    if (used() + slots > capacity) {
      *violation = "record without credit";
      return false;
    }
  }
  inflight_slots_ += slots;
  return true;
}

bool Channel::publish_head(bool now) {
  const uint64_t head = submissions.position();
  const uint64_t freed = head - head_published_;
  if (freed == 0 || (!now && freed < spec->sizes.submission_slots / 8)) return false;
  head_published_ = head;
  words->submission_head.store(head, std::memory_order_release);
  return freed >= spec->sizes.submission_slots / 8;
}

bool Channel::notification_room(uint32_t slots, const char** violation) {
  const uint64_t capacity = spec->sizes.notification_slots;
  if (notifications.position() - notification_cursor_seen_ + slots <= capacity) return true;
  const uint64_t cursor = client->notification_cursor.load(std::memory_order_acquire);
  if (cursor < notification_cursor_seen_ || cursor > notifications.position()) {
    *violation = "notification cursor outside what was published";
    return false;
  }
  notification_cursor_seen_ = cursor;
  return notifications.position() - cursor + slots <= capacity;
}

uint64_t Channel::take_cancel(const char** violation) {
  const uint64_t tail = client->cancel_tail.load(std::memory_order_acquire);
  if (tail == cancel_head_) return 0;
  if (tail - cancel_head_ > shm::kCancelSlots) {
    *violation = "cancel tail outside its ring";
    return 0;
  }
  const uint64_t id =
      client->cancel_ids[cancel_head_ % shm::kCancelSlots].load(std::memory_order_relaxed);
  const bool unread = id > submissions.position();
  if (unread && submissions.ready()) return 0;  // comes up in one of the next turns
  ++cancel_head_;
  words->cancel_head.store(cancel_head_, std::memory_order_release);
  return unread ? 0 : id;
}

}  // namespace wherry::engine
