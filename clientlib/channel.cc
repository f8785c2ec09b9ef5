#include "clientlib/channel.h"

#include "clientlib/channel_core.h"
#include "clientlib/guard.h"

namespace wherry {
namespace {

// The waiting form of `attempt`.
template <typename Attempt>
Result<TransferCompleteNotification> until_it_fits(detail::ChannelCore& core,
                                                   const TransferOptions& options,
                                                   const Attempt& attempt) {
  TransferOptions fixed = options;
  uint64_t deadline = 0;
  for (;;) {
    Result<TransferCompleteNotification> result = attempt(fixed);
    const Code code = result.code();
    if (code != Code::kRingFull && code != Code::kNoCredit) return result;
    if (deadline == 0) {
      // Time spent waiting counts: from here on the deadline is absolute.
      deadline = detail::ChannelCore::absolute_deadline(options);
      fixed.deadline_ns = deadline;
      fixed.timeout_ns = 0;
      if (deadline == 0) deadline = monotonic_ns() + core.default_deadline_ns();
    }
    if (Status status = core.wait_for_room(code, deadline); !status.ok()) return status;
  }
}

}  // namespace

Result<TransferCompleteNotification> Channel::execute_local_transfer(
    LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
    std::span<const BlockId> destination_blocks, const TransferOptions& options) {
  return detail::guarded([&] {
    return until_it_fits(*core_, options, [&](const TransferOptions& fixed) {
      return core_->try_transfer(source, destination, source_blocks, destination_blocks, fixed);
    });
  });
}

Result<TransferCompleteNotification> Channel::try_execute_local_transfer(
    LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
    std::span<const BlockId> destination_blocks, const TransferOptions& options) {
  return detail::guarded([&] {
    return core_->try_transfer(source, destination, source_blocks, destination_blocks, options);
  });
}

Result<TransferCompleteNotification> Channel::copy_range(const RangeOp& op,
                                                         const TransferOptions& options) {
  return detail::guarded([&] {
    return until_it_fits(*core_, options,
                         [&](const TransferOptions& fixed) { return core_->try_range(op, fixed); });
  });
}

Result<TransferCompleteNotification> Channel::try_copy_range(const RangeOp& op,
                                                             const TransferOptions& options) {
  return detail::guarded([&] { return core_->try_range(op, options); });
}

Result<TransferCompleteNotification> Channel::notify(ClientHandle target, std::string_view bytes,
                                                     const TransferOptions& options) {
  return detail::guarded([&] {
    return until_it_fits(*core_, options, [&](const TransferOptions& fixed) {
      return core_->try_notify(target, bytes, fixed);
    });
  });
}

Result<TransferCompleteNotification> Channel::try_notify(ClientHandle target,
                                                         std::string_view bytes,
                                                         const TransferOptions& options) {
  return detail::guarded([&] { return core_->try_notify(target, bytes, options); });
}

uint32_t Channel::poll() noexcept { return core_->poll(); }

Result<std::vector<Notification>> Channel::poll_notifications() {
  return detail::guarded([&] { return core_->take_notifications(); });
}

Result<std::vector<Notification>> Channel::wait_notifications(uint64_t deadline_ns) {
  return detail::guarded([&] { return core_->wait_notifications(deadline_ns); });
}

Result<int> Channel::descriptor() {
  return detail::guarded([&] { return core_->descriptor(false); });
}

void Channel::release() noexcept { core_->release(); }

}  // namespace wherry
