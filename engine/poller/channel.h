// Channel: a poller's private state of one channel, around the words and rings in shared memory.
//
// Constructed on the control thread (it allocates the pools), then used by the poller's thread
// only. Positions, credits and counts live here, never in memory that the client can write.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/poller/channel_spec.h"
#include "engine/poller/deadlines.h"
#include "engine/poller/request.h"
#include "engine/poller/scheduler.h"
#include "shm/inflight.h"
#include "shm/ring.h"

namespace wherry::engine {

class Channel {
 public:
  enum class State : uint8_t { kActive, kBroken, kClosing, kClosed };

  explicit Channel(ChannelSpec* channel_spec);

  // Rings and words.
  ChannelSpec* const spec;
  const shm::ClientWords* const client;
  shm::EngineWords* const words;
  shm::ChannelCounters* const counters;
  shm::RecordReader submissions;
  shm::RecordWriter completions;
  shm::RecordWriter notifications;  // only where sizes.notification_slots is not 0
  shm::InflightWriter inflight;

  // Pools. `requests` and the chunks never run dry while credits hold.
  std::vector<Request> requests;
  ChunkPool chunks;
  Deadlines deadlines;

  State state = State::kActive;
  uint32_t slot = 0;  // index in the poller's table
  Flow* flow = nullptr;
  uint32_t live = 0;         // requests accepted and not completed
  uint32_t quiet_turns = 0;  // turns without a record: idle channels are looked at less often
  bool active = true;
  bool dirty = false;  // something was published for the client in this turn
  bool reported_fault = false;
  uint32_t wake_count = 0;  // private copy of words->wake

  Request* take_request();
  void give_back(Request* request);

  // Whether the record's slots are covered by credits; re-reads the client's reap cursor only when
  // its own count falls short. False with *violation set when the cursor is impossible.
  bool take_credits(uint32_t slots, const char** violation);
  // After a completion of `used` slots for a record of `taken`.
  void settle_credits(uint32_t taken, uint32_t used) {
    inflight_slots_ -= taken;
    unreaped_end_ += used;
  }

  // Tells the client how far its submissions have been copied: at the latest every ring/8 slots, or
  // when `now`. True when so much became free that a client waiting for space should hear of it.
  bool publish_head(bool now);

  // Free slots of the notification ring. False with *violation set when the client's cursor is
  // impossible.
  bool notification_room(uint32_t slots, const char** violation);

  bool cancel_waiting() const {
    return client->cancel_tail.load(std::memory_order_acquire) != cancel_head_;
  }

  // The id of a request the client wants cancelled, once its record has been read; 0 when there is
  // none.
  uint64_t take_cancel(const char** violation);

 private:
  Request* free_ = nullptr;
  uint64_t inflight_slots_ = 0;
  uint64_t unreaped_end_ = 0;  // completion ring position, counted here
  uint64_t reap_seen_ = 0;
  uint64_t head_published_ = 0;
  uint64_t notification_cursor_seen_ = 0;
  uint64_t cancel_head_ = 0;
};

}  // namespace wherry::engine
