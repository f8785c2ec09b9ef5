#include "clientlib/worker_transfers.h"

namespace wherry {
namespace {

std::string named(LogicalLayoutHandle tier) { return std::string(tier_name(tier)); }

Status object_store(const char* what) {
  return {Code::kUnsupported, std::string(what) +
                                  ": wanted a tier from G1 to G3, got G4; object stores "
                                  "come with a later release"};
}

Status remote_later(const char* call) {
  return {Code::kUnsupported, std::string(call) +
                                  ": wanted both sides on this host, got a remote one; "
                                  "remote transfers come with a later release"};
}

bool known(LogicalLayoutHandle tier) { return tier >= Tier::kG1 && tier <= Tier::kG4; }

}  // namespace

Status DirectWorker::bind(LogicalLayoutHandle tier, LayoutHandle layout) {
  if (tier == Tier::kG4) return object_store("bind");
  if (!known(tier) || layout.value == 0) {
    return {Code::kInvalidArgument, "bind: wanted a tier and a layout's handle, got tier " +
                                        std::to_string(static_cast<uint32_t>(tier)) +
                                        " and handle " + std::to_string(layout.value) +
                                        "; register a layout first"};
  }
  uint64_t none = 0;
  auto& slot = layouts_[static_cast<size_t>(tier) - 1];
  if (slot.compare_exchange_strong(none, layout.value)) return {};
  return {Code::kAlreadyExists, "bind: wanted a tier without a layout, got " + named(tier) +
                                    ", which has one; make another worker"};
}

Result<LayoutHandle> DirectWorker::layout_of(const char* side, LogicalLayoutHandle tier) const {
  if (tier == Tier::kG4) return object_store(side);
  const uint64_t handle =
      known(tier) ? layouts_[static_cast<size_t>(tier) - 1].load(std::memory_order_acquire) : 0;
  if (handle != 0) return LayoutHandle{handle};
  return Status(Code::kInvalidArgument, std::string(side) +
                                            " tier: wanted one with a layout, got " + named(tier) +
                                            ", which has none; bind() it first");
}

Result<TransferCompleteNotification> DirectWorker::execute_local_transfer(
    LogicalLayoutHandle source, LogicalLayoutHandle destination,
    std::span<const BlockId> source_blocks, std::span<const BlockId> destination_blocks,
    const TransferOptions& options) {
  // G4 on either side is refused before anything else is looked at.
  if (source == Tier::kG4 || destination == Tier::kG4) return object_store("local transfer");
  Result<LayoutHandle> from = layout_of("source", source);
  if (!from.ok()) return from.status();
  Result<LayoutHandle> to = layout_of("destination", destination);
  if (!to.ok()) return to.status();
  return client_.execute_local_transfer(*from, *to, source_blocks, destination_blocks, options);
}

Result<TransferCompleteNotification> DirectWorker::execute_remote_onboard(
    const RemoteDescriptor& /*source*/, LogicalLayoutHandle destination,
    std::span<const BlockId> /*destination_blocks*/, const TransferOptions& /*options*/) {
  if (destination == Tier::kG4) return object_store("remote onboard");
  return remote_later("execute_remote_onboard");
}

Result<TransferCompleteNotification> DirectWorker::execute_remote_offload(
    LogicalLayoutHandle source, std::span<const BlockId> /*source_blocks*/,
    const RemoteDescriptor& /*destination*/, const TransferOptions& /*options*/) {
  if (source == Tier::kG4) return object_store("remote offload");
  return remote_later("execute_remote_offload");
}

Result<ConnectRemoteResponse> DirectWorker::connect_remote(
    const InstanceId& /*instance*/, const std::vector<SerializedLayout>& /*metadata*/) {
  return remote_later("connect_remote");
}

bool DirectWorker::has_remote_metadata(const InstanceId& /*instance*/) { return false; }

Result<TransferCompleteNotification> DirectWorker::execute_remote_onboard_for_instance(
    const InstanceId& /*instance*/, LogicalLayoutHandle /*remote_tier*/,
    std::span<const BlockId> /*source_blocks*/, LogicalLayoutHandle destination,
    std::span<const BlockId> /*destination_blocks*/, const TransferOptions& /*options*/) {
  if (destination == Tier::kG4) return object_store("remote onboard");
  return remote_later("execute_remote_onboard_for_instance");
}

}  // namespace wherry
