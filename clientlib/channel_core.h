// ChannelCore: one submission and completion ring with the requests on it. Internal; Channel is the
// face.
//
// Owned by one thread at a time: the one that opened it until it calls release() or ends, then the
// next that uses it. "Owner" below means that thread; others get INVALID_ARGUMENT, or only watch.
// No lock, no allocation once the pools have grown, no system call while both sides are awake.
//
// A channel outlives attachments: each has a Link of its own. When a life is over, the owner
// resolves all requests of the old link (completion there = its outcome; in the in-flight table =
// ENGINE_GONE; else NOT_STARTED) before it takes the link that the session offered.
//
// What throws for want of memory throws before it changes anything, so that it can be tried again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "clientlib/fork.h"
#include "clientlib/handle_table.h"
#include "clientlib/link.h"
#include "clientlib/notification.h"
#include "clientlib/owner.h"
#include "clientlib/request.h"
#include "clientlib/types.h"
#include "clientlib/validate.h"

namespace wherry::detail {

struct CoreOptions {
  bool descriptor = false;
  uint64_t spin_ns = 20'000;                  // before a wait sleeps
  std::function<void(const Link&)> on_close;  // with the newest link, if any; from any thread
};

class ChannelCore : public std::enable_shared_from_this<ChannelCore> {
 public:
  // The calling thread becomes the owner. Usable once a link was offered. NO_RESOURCES when
  // descriptors were asked for and there are none left.
  static Result<std::shared_ptr<ChannelCore>> create(std::shared_ptr<const HandleTable> handles,
                                                     CoreOptions options);
  ~ChannelCore();

  // Any thread: the link of the next life. Replaces one that was not taken yet. Wakes an event loop
  // that watches the descriptor.
  void offer(std::unique_ptr<Link> link) noexcept;
  // Any thread: there is none in this life, for this reason.
  void refuse(Code code) noexcept { refused_.store(code, std::memory_order_release); }

  // Owner: gives the channel up; from others nothing happens.
  void release() noexcept { owner_.release(); }
  // Any thread: whether it is the owner now. Never in a forked child.
  bool try_own() noexcept { return !forked() && owner_.try_take(); }

  // Owner. Accepts the whole request or nothing; never blocks. See Channel for the codes.
  Result<TransferCompleteNotification> try_transfer(LayoutHandle source, LayoutHandle destination,
                                                    std::span<const BlockId> source_blocks,
                                                    std::span<const BlockId> destination_blocks,
                                                    const TransferOptions& options);
  Result<TransferCompleteNotification> try_range(const RangeOp& op, const TransferOptions& options);
  Result<TransferCompleteNotification> try_notify(ClientHandle target, std::string_view bytes,
                                                  const TransferOptions& options);

  // What try_range would refuse without looking at the engine.
  Status check(const RangeOp& op) const;

  // Owner: waits until a request refused as RING_FULL or NO_CREDIT may fit; TIMED_OUT when the
  // deadline passes first.
  Status wait_for_room(Code refusal, uint64_t deadline_ns);

  // How long a request without a deadline may wait for room.
  uint64_t default_deadline_ns() const;

  // The owner does the channel's work; how many requests it completed. Others: 0. What there is no
  // memory for is left to the next call.
  uint32_t drive() noexcept;
  // drive() by a caller who looks at all requests afterwards, so what it and earlier calls
  // completed needs no wake-up.
  uint32_t poll() noexcept;
  // The owner looks at what it was woken for. Others: nothing happens.
  void looked() noexcept {
    if (owner_.held()) told_ = false;
  }

  Status wait(const Request& request, uint64_t deadline_ns);
  Status cancel(Request* request);
  // `ready`: the descriptor shall be readable at once.
  Result<int> descriptor(bool ready);

  // Owner: notifications that arrived, oldest first. INVALID_ARGUMENT when the channel is not this
  // thread's or gets none.
  Result<std::vector<Notification>> take_notifications();
  // Until one has arrived or the deadline passes.
  Result<std::vector<Notification>> wait_notifications(uint64_t deadline_ns);

  RequestPool& pool() { return pool_; }
  // Deadline of a call: absolute, or 0 when the options name none.
  static uint64_t absolute_deadline(const TransferOptions& options);
  bool forked() const { return fork_generation_ != fork_generation(); }

 private:
  struct Piece {
    const BlockId* source = nullptr;
    const BlockId* destination = nullptr;
    uint32_t blocks = 0;
    uint32_t first_index = 0;
    std::string_view notification;
    const shm::RangeEntry* range = nullptr;
  };

  ChannelCore(std::shared_ptr<const HandleTable> handles, CoreOptions options);

  // channel_submit.cc
  Status gone() const;
  Status ready_to_submit();
  Status room_for(uint32_t slots);
  Status check_range_op(const RangeOp& op, HandleInfo* from, HandleInfo* to) const;
  Request* new_request(const shm::SubmitHead& head);
  TransferCompleteNotification accept(Request* request, const Piece& first);
  void publish(Request* request, const Piece& piece);
  bool publish_waiting(Request* request);
  void flush_waiting();
  void abandon_waiting(Request* request, Code code);
  void unlink_waiting(Request* request);
  uint32_t max_blocks() const;

  // channel_drive.cc
  bool take_link();
  void drop_link();
  bool over() const;
  void work();
  void reap();
  void reserve_failed(const Record& record, const shm::CompletionHead& head);
  void merge(const Record& record, const shm::CompletionHead& head);
  void merge_failed(const Record& record, const shm::CompletionHead& head);
  void settle(Request* request);
  void resolve_rest();
  void end_record(const Record& record, Code code, bool quiet);
  void send_cancels();
  void read_notifications();

  // channel_wait.cc
  enum class Look : uint8_t { kCompletions, kNotifications, kSpace };
  bool work_waits(Look look) const;
  void pause(uint64_t now, uint64_t deadline_ns, Look look);
  Status notifications_ready();
  void disarm();
  void disarm_self();

  const std::shared_ptr<const HandleTable> handles_;
  const CoreOptions options_;
  const uint32_t fork_generation_;
  Owner owner_;
  std::atomic<Link*> next_link_{nullptr};
  std::atomic<Code> refused_{Code::kOk};  // why there is no link, when the engine is not the reason

  // The owner's.
  std::unique_ptr<Link> link_;
  uint64_t lives_ = 0;    // links taken so far
  bool corrupt_ = false;  // the engine published something impossible
  RequestPool pool_;
  BlockSet blocks_;
  Request* waiting_ = nullptr;  // requests with unpublished parts, oldest first
  Code blocked_ = Code::kOk;    // why the first of them waits
  bool cancels_wanted_ = false;
  bool written_ = false;   // something was published since the last doorbell
  uint32_t finished_ = 0;  // requests completed in this drive()
  // Requests were completed by calls other than poll(), which an event loop has not heard of.
  bool unheard_ = false;
  bool told_ = false;  // the descriptor was made readable, and nobody has looked since
  std::vector<Notification> inbox_;

  shm::UniqueFd epoll_;  // what callers watch: wake socket and self event
  shm::UniqueFd self_event_;
  bool armed_ = false;
};

}  // namespace wherry::detail
