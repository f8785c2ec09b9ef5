// Channel: a submission ring and a completion ring of one's own.
//
// Made by Client::open_channel(), and behind every Client call: each thread that uses a Client gets
// a channel of its own the first time. A copyable handle; the channel lives as long as a handle or
// one of its notifications does (those behind Client calls as long as the client), and what is
// under way when it goes is aborted. It belongs to one thread at a time, the one that opened it;
// calls from another get INVALID_ARGUMENT until the owner has said release() or has ended, after
// which the next user owns it. No call throws.
//
// The try_ forms never block and refuse at once, with nothing accepted:
//   RING_FULL    no free submission slot yet
//   NO_CREDIT    poll, so that requests can complete
//   DRAINING     the engine takes no new requests
//   ENGINE_GONE  no engine; the library attaches again
// and what the library can see is wrong: INVALID_ARGUMENT, OUT_OF_RANGE, OVERLAP,
// INCOMPATIBLE_LAYOUT, NOT_PERMITTED, STALE, UNSUPPORTED. The other forms differ in one thing:
// where a try_ form says RING_FULL or NO_CREDIT they wait until the request's deadline (TIMED_OUT;
// without one, the engine's default), doing the channel's work meanwhile. Everything else that goes
// wrong is in the completion.
//
// A request too large for one record is split. What does not fit yet is published by whoever next
// polls or waits for anything on this channel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "clientlib/notification.h"
#include "clientlib/types.h"

namespace wherry {

struct ChannelOptions {
  uint32_t submission_slots = 0;  // a power of two, 8 to 65,536; 0 = as the engine's config says
  bool descriptor = false;        // whether its notifications have a descriptor for event loops
  uint32_t spin_us = 20;          // how long a wait spins before it sleeps
};

class Channel {
 public:
  // Copies source_blocks[i] of `source` to destination_blocks[i] of `destination`. Both layouts are
  // this client's own or found. The lists are copied; they may go once the call returns.
  Result<TransferCompleteNotification> execute_local_transfer(
      LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
      std::span<const BlockId> destination_blocks, const TransferOptions& options = {});
  Result<TransferCompleteNotification> try_execute_local_transfer(
      LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
      std::span<const BlockId> destination_blocks, const TransferOptions& options = {});

  // Copies a range of bytes; in the completion it counts as one block. UNSUPPORTED with layers or a
  // notification in the options.
  Result<TransferCompleteNotification> copy_range(const RangeOp& op,
                                                  const TransferOptions& options = {});
  Result<TransferCompleteNotification> try_copy_range(const RangeOp& op,
                                                      const TransferOptions& options = {});

  // Sends 1 to 1,024 bytes to another client. The completion says BOX_FULL when that does not read.
  // UNSUPPORTED with layers or a notification in the options.
  Result<TransferCompleteNotification> notify(ClientHandle target, std::string_view bytes,
                                              const TransferOptions& options = {});
  Result<TransferCompleteNotification> try_notify(ClientHandle target, std::string_view bytes,
                                                  const TransferOptions& options = {});

  // Does the channel's work; how many requests it completed. 0 when called by a thread that is not
  // the owner.
  uint32_t poll() noexcept;

  // Notifications that arrived, oldest first. Only a client's first channel, that of the thread
  // that attached, receives any; INVALID_ARGUMENT for others. wait_ returns as soon as there is
  // one, or empty at the deadline.
  Result<std::vector<Notification>> poll_notifications();
  Result<std::vector<Notification>> wait_notifications(uint64_t deadline_ns);

  // A descriptor that becomes readable when poll() or poll_notifications() should be called. Call
  // it before each sleep: it also arms. As TransferCompleteNotification::descriptor(). Readable at
  // once when a call other than poll(), such as poll_notifications() or a submit, has completed a
  // request since: look at all requests of the channel after each wake-up.
  Result<int> descriptor();

  // Gives the channel up: the next thread that uses it owns it. Nothing happens on a thread that is
  // not the owner.
  void release() noexcept;

  // Internal: made by the session.
  explicit Channel(std::shared_ptr<detail::ChannelCore> core) : core_(std::move(core)) {}
  detail::ChannelCore& core() const { return *core_; }

 private:
  std::shared_ptr<detail::ChannelCore> core_;
};

}  // namespace wherry
