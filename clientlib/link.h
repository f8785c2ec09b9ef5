// Link: one life of a channel, between two attachments: mappings, rings, credits, and the records
// under way. Internal.
//
// Belongs to the thread that owns the channel, except that the session makes it. After the engine's
// death the memory stays mapped and can be read to the end. Nothing here blocks but sleep(), and
// nothing allocates but the constructor.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "clientlib/life.h"
#include "clientlib/request.h"
#include "shm/doorbell.h"
#include "shm/file_descriptor.h"
#include "shm/inflight.h"
#include "shm/ring.h"
#include "shm/segment.h"
#include "shm/words.h"

namespace wherry::detail {

struct LinkParts {
  shm::MappedSegment c2e;  // writable
  shm::MappedSegment e2c;  // read-only
  shm::SegmentHeader c2e_header{};
  shm::SegmentHeader e2c_header{};
  shm::UniqueFd eventfd;      // client -> engine; not valid: nobody is rung (tests)
  shm::UniqueFd wake_socket;  // engine -> client, where the channel has a descriptor
  std::shared_ptr<Life> life;
  uint32_t number = 0;          // the channel's number in its session
  int64_t clock_offset_ns = 0;  // this process's CLOCK_MONOTONIC = the engine's + this
  uint64_t default_deadline_ns = 30'000'000'000;
};

// Maps and checks the two segments of a channel. The writable mapping is made here, before anything
// is answered to the engine, which then closes c2e to further ones.
Result<LinkParts> map_link(int c2e_fd, int e2c_fd);

class Link {
 public:
  explicit Link(LinkParts parts);

  // kOk, or kRingFull or kNoCredit when a record of `slots` slots cannot be published now.
  Code room(uint32_t slots) {
    if (slots > submission_slots_ - (writer_.position() - head_seen_)) {
      head_seen_ = engine_->submission_head.load(std::memory_order_acquire);
      if (slots > submission_slots_ - (writer_.position() - head_seen_)) return Code::kRingFull;
    }
    return slots > credits_ - credits_used_ ? Code::kNoCredit : Code::kOk;
  }

  // Only after room() said kOk; returns the request id. The doorbell is the caller's business.
  uint64_t publish(const shm::SubmitHead& head) {
    store_reap_cursor();  // before credits that were freed by reaping are spent
    const uint64_t id = writer_.position() + 1;
    writer_.publish(&head, head.slot_count);
    credits_used_ += head.slot_count;
    return id;
  }
  shm::RecordWriter& writer() { return writer_; }

  // Wakes the poller if it sleeps. After publishing or cancelling.
  void ring() {
    client_->submission_tail.store(writer_.position(),
                                   std::memory_order_relaxed);  // for stats only
    shm::doorbell_fence();
    if (engine_->doorbell_wanted.load(std::memory_order_relaxed) != 0 && parts_.eventfd.valid()) {
      shm::ring_eventfd(parts_.eventfd.get());
    }
  }

  // Whether the engine has freed submission slots since room() looked.
  bool head_moved() const {
    return engine_->submission_head.load(std::memory_order_acquire) != head_seen_;
  }

  const shm::RecordReader& completions() const { return completions_; }
  // Steps over the completion at the reader's position: its record's credits are free again.
  void reap(uint32_t completion_slots, uint32_t record_slots) {
    completions_.consume(completion_slots);
    credits_used_ -= record_slots;
  }
  // Tells the engine how far completions were reaped.
  void store_reap_cursor() {
    if (reap_stored_ == completions_.position()) return;
    reap_stored_ = completions_.position();
    client_->reap_cursor.store(reap_stored_, std::memory_order_release);
  }

  RecordTable& records() { return records_; }

  bool has_notifications() const { return notification_slots() != 0; }
  uint32_t notification_slots() const { return parts_.e2c_header.notification_slots; }
  const shm::RecordReader& notifications() const { return notifications_; }
  // Steps over the notification at the reader's position.
  void notification_read(uint32_t slots) {
    notifications_.consume(slots);
    client_->notification_cursor.store(notifications_.position(), std::memory_order_release);
  }

  // Asks the engine to cancel; false when the cancel ring is full. ring() has to follow.
  bool cancel(uint64_t request_id);

  shm::ChannelState state() const {
    return static_cast<shm::ChannelState>(engine_->state.load(std::memory_order_acquire));
  }
  // Whether the poller would need this thread's processor to go on.
  bool shares_cpu() const {
    return engine_->cpu.load(std::memory_order_relaxed) == static_cast<uint32_t>(sched_getcpu());
  }
  bool lost() const { return parts_.life->lost(); }
  bool engine_dead() const { return parts_.life->dead(); }
  const shm::InflightReader& inflight() const { return inflight_; }

  // Tells the engine how to wake this client; `look` is asked once more after that. Returns false,
  // and the client counts as awake, when look() says there is work.
  template <typename Look>
  bool fall_asleep(uint32_t how, const Look& look) {
    wake_seen_ = engine_->wake.load(std::memory_order_acquire);
    client_->sleeping.store(shm::sleeping_word(wake_seen_, how), std::memory_order_relaxed);
    shm::doorbell_fence();
    if (!look()) return true;
    wake_up();
    return false;
  }
  // After fall_asleep(kSleepsOnFutex): waits at most `timeout_ns`.
  void sleep(int64_t timeout_ns) { shm::futex_wait(engine_->wake, wake_seen_, timeout_ns); }
  void wake_up() { client_->sleeping.store(shm::kAwake, std::memory_order_relaxed); }

  uint32_t max_record_slots() const { return submission_slots_ / 4 + 1; }
  const LinkParts& parts() const { return parts_; }

 private:
  LinkParts parts_;
  shm::ClientWords* client_;
  const shm::EngineWords* engine_;
  uint32_t submission_slots_;
  uint32_t credits_;
  shm::RecordWriter writer_;
  shm::RecordReader completions_;
  shm::RecordReader notifications_;
  shm::InflightReader inflight_;
  RecordTable records_;
  uint64_t head_seen_ = 0;
  uint64_t credits_used_ = 0;
  uint64_t reap_stored_ = 0;
  uint64_t cancel_tail_ = 0;
  uint32_t wake_seen_ = 0;
};

}  // namespace wherry::detail
