// WorkerTransfers: the transfers of one worker in terms of tiers, and DirectWorker, which does them
// through one Client.
//
// The names and arguments are those of the interface that KV-cache managers program against; what a
// transfer means, its options and its refusals are those of Client. Object-store tiers (G4) and
// everything remote are for later and answer UNSUPPORTED, or false, at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "clientlib/client.h"
#include "clientlib/types.h"

namespace wherry {

using LogicalLayoutHandle = Tier;  // G1 device, G2 host, G3 disk, G4 object store

// Where the other side of a remote transfer is.
struct RemoteLayout {
  LayoutHandle layout;             // a found one
  std::vector<BlockId> block_ids;  // valid there
};
struct RemoteObjects {
  std::vector<uint64_t> keys;  // one per local block
};
using RemoteDescriptor = std::variant<RemoteLayout, RemoteObjects>;

// What one rank exported about its layouts.
struct SerializedLayout {
  std::string bytes;
};

// The future of a connect_remote().
class ConnectRemoteResponse {
 public:
  bool could_yield() const { return false; }
  Status wait(uint64_t /*deadline_ns*/ = kForever) { return {}; }
};

// Any thread, all at once. The block lists are copied.
class WorkerTransfers {
 public:
  virtual ~WorkerTransfers() = default;

  virtual Result<TransferCompleteNotification> execute_local_transfer(
      LogicalLayoutHandle source, LogicalLayoutHandle destination,
      std::span<const BlockId> source_blocks, std::span<const BlockId> destination_blocks,
      const TransferOptions& options) = 0;

  // Reads from the remote side into a local tier.
  virtual Result<TransferCompleteNotification> execute_remote_onboard(
      const RemoteDescriptor& source, LogicalLayoutHandle destination,
      std::span<const BlockId> destination_blocks, const TransferOptions& options) = 0;

  // Writes from a local tier to the remote side.
  virtual Result<TransferCompleteNotification> execute_remote_offload(
      LogicalLayoutHandle source, std::span<const BlockId> source_blocks,
      const RemoteDescriptor& destination, const TransferOptions& options) = 0;

  // Imports what the ranks of an instance exported, all or nothing.
  virtual Result<ConnectRemoteResponse> connect_remote(
      const InstanceId& instance, const std::vector<SerializedLayout>& metadata) = 0;

  // True only after a successful import that still holds.
  virtual bool has_remote_metadata(const InstanceId& instance) = 0;

  // Onboards from a tier of an instance that was connected.
  virtual Result<TransferCompleteNotification> execute_remote_onboard_for_instance(
      const InstanceId& instance, LogicalLayoutHandle remote_tier,
      std::span<const BlockId> source_blocks, LogicalLayoutHandle destination,
      std::span<const BlockId> destination_blocks, const TransferOptions& options) = 0;
};

// One rank: at most one layout per tier, through the calling thread's channel of the client.
class DirectWorker final : public WorkerTransfers {
 public:
  explicit DirectWorker(Client client) : client_(std::move(client)) {}

  // Says which layout, published under this tier or not, stands for the tier. Once: ALREADY_EXISTS
  // the second time. G4 is refused as UNSUPPORTED, 0 as INVALID_ARGUMENT.
  Status bind(LogicalLayoutHandle tier, LayoutHandle layout);

  Result<TransferCompleteNotification> execute_local_transfer(
      LogicalLayoutHandle source, LogicalLayoutHandle destination,
      std::span<const BlockId> source_blocks, std::span<const BlockId> destination_blocks,
      const TransferOptions& options) override;
  Result<TransferCompleteNotification> execute_remote_onboard(
      const RemoteDescriptor& source, LogicalLayoutHandle destination,
      std::span<const BlockId> destination_blocks, const TransferOptions& options) override;
  Result<TransferCompleteNotification> execute_remote_offload(
      LogicalLayoutHandle source, std::span<const BlockId> source_blocks,
      const RemoteDescriptor& destination, const TransferOptions& options) override;
  Result<ConnectRemoteResponse> connect_remote(
      const InstanceId& instance, const std::vector<SerializedLayout>& metadata) override;
  bool has_remote_metadata(const InstanceId& instance) override;
  Result<TransferCompleteNotification> execute_remote_onboard_for_instance(
      const InstanceId& instance, LogicalLayoutHandle remote_tier,
      std::span<const BlockId> source_blocks, LogicalLayoutHandle destination,
      std::span<const BlockId> destination_blocks, const TransferOptions& options) override;

  // Of the client behind it.
  Client& client() { return client_; }

 private:
  Result<LayoutHandle> layout_of(const char* side, LogicalLayoutHandle tier) const;

  Client client_;
  std::array<std::atomic<uint64_t>, 3> layouts_{};  // G1 to G3; 0 = none
};

}  // namespace wherry
