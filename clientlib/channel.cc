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
  const auto refused = [](const Result<TransferCompleteNotification>& result) {
    return result.code() == Code::kRingFull || result.code() == Code::kNoCredit;
  };
  Result<TransferCompleteNotification> result = attempt(options);
  if (!refused(result)) return result;
  // Time spent waiting counts: from here on the deadline is absolute.
  TransferOptions fixed = options;
  fixed.deadline_ns = detail::ChannelCore::absolute_deadline(options);
  fixed.timeout_ns = 0;
  const uint64_t deadline =
      fixed.deadline_ns != 0 ? fixed.deadline_ns : monotonic_ns() + core.default_deadline_ns();
  do {
    if (Status s = core.wait_for_room(result.code(), deadline); !s.ok()) return s;
    result = attempt(fixed);
  } while (refused(result));
  return result;
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
