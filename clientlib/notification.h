// TransferCompleteNotification: the future of one request, or of several.
//
// A copyable handle; dropping it does not stop the transfer, as long as its channel lives. The
// buffers must stay valid until it is complete *and* its completion says that they are quiet.
// poll() and wait() do the work of the request's channel: they reap completions, publish what did
// not fit before and notice the engine's death. So call them from the thread the channel belongs
// to; from any other thread they only watch (until the owner has given the channel up or has ended,
// then the next caller takes it over). A request of a channel whose thread neither polls nor waits
// for anything moves no further than what was published. No call throws.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "clientlib/types.h"

namespace wherry {

namespace detail {
class ChannelCore;
struct Aggregate;
struct Request;
}  // namespace detail

class TransferCompleteNotification {
 public:
  // Complete, OK, no bytes: what an empty block list gives.
  TransferCompleteNotification() = default;
  TransferCompleteNotification(const TransferCompleteNotification& other);
  TransferCompleteNotification(TransferCompleteNotification&& other) noexcept;
  TransferCompleteNotification& operator=(TransferCompleteNotification other) noexcept;
  ~TransferCompleteNotification();

  // One notification for all of `members`: complete when every one is, also after a failure. The
  // completion has the worst status, sums of blocks and bytes, and failed blocks with `member` =
  // position in `members`. NOT_STARTED only if every one was not started. No members: complete.
  // NO_RESOURCES when there is no memory for it.
  static Result<TransferCompleteNotification> aggregate(
      std::vector<TransferCompleteNotification> members);

  // Whether it is complete. Never blocks; no system call (but when a descriptor was armed).
  bool poll() noexcept;

  // The completion, or TIMED_OUT when the deadline (CLOCK_MONOTONIC nanoseconds) passes first: the
  // request goes on then, and may be waited for again. ABORTED in a forked child, which owns no
  // request.
  Result<Completion> wait(uint64_t deadline_ns = kForever);

  // Null until complete; then valid as long as this object. Looks only: poll() and wait() do the
  // work.
  const Completion* completion() const noexcept;

  // Whether wait() may have to wait.
  bool could_yield() const noexcept { return completion() == nullptr; }

  // Ends the request as CANCELLED once nothing of it is under way any more; what has arrived by
  // then is in the completion. Nothing happens to a complete one. INVALID_ARGUMENT from another
  // thread.
  Status cancel();

  // For event loops: a descriptor that becomes readable when poll() should be called. Call it
  // before each sleep: it also arms. The number stays the same for the channel's life; do not read
  // from or close it. UNSUPPORTED unless the channel was opened with a descriptor, and for members
  // of several channels.
  Result<int> descriptor();

 private:
  friend class detail::ChannelCore;
  // Takes over one reference.
  TransferCompleteNotification(std::shared_ptr<detail::ChannelCore> channel,
                               detail::Request* request)
      : channel_(std::move(channel)), request_(request) {}

  std::shared_ptr<detail::ChannelCore> channel_;
  detail::Request* request_ = nullptr;
  std::shared_ptr<detail::Aggregate> aggregate_;
};

}  // namespace wherry
