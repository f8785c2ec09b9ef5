// What the library can see is wrong with a request before it is accepted. Internal.
//
// Called on the channel's thread; nothing here blocks. The engine checks all of it again, against
// its own tables, and more: overlap by backing, lengths of list entries, rights.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

#include "clientlib/handle_table.h"
#include "clientlib/types.h"

namespace wherry::detail {

// A set of block ids: a bit each, all clear between two uses. Grows to the largest id it ever held.
class BlockSet {
 public:
  // NO_RESOURCES when there is no memory for ids up to `largest`.
  Status reserve(BlockId largest);
  bool contains(BlockId id) const { return (bits_.get()[id / 64] >> (id % 64) & 1) != 0; }
  bool insert(BlockId id) {
    if (contains(id)) return false;
    bits_.get()[id / 64] |= uint64_t{1} << (id % 64);
    return true;
  }
  void erase(std::span<const BlockId> ids) {
    for (BlockId id : ids) bits_.get()[id / 64] = 0;
  }

 private:
  struct Free {
    void operator()(uint64_t* words) const { std::free(words); }
  };
  std::unique_ptr<uint64_t, Free> bits_;
  uint64_t words_ = 0;
};

// Looks up a handle. STALE when it is none (any more) or its owner is gone; INVALID_ARGUMENT when
// it is neither of the kinds wanted; what the engine said when it could not be registered again.
Status find_layout_handle(const HandleTable& table, const char* side, uint64_t handle,
                          HandleInfo* info);
Status find_memory_handle(const HandleTable& table, const char* side, uint64_t handle,
                          HandleInfo* info);
Status find_client_handle(const HandleTable& table, uint64_t handle, HandleInfo* info);

// Options that do not depend on the layouts.
Status check_options(const TransferOptions& options, uint32_t max_record_slots);

// A notification that is sent by itself.
Status check_notification(std::string_view bytes, uint32_t max_record_slots);

// The whole list, before it is split. `same` = both handles are one.
Status check_transfer(const HandleInfo& source, const HandleInfo& destination, bool same,
                      std::span<const BlockId> source_blocks,
                      std::span<const BlockId> destination_blocks, const TransferOptions& options,
                      BlockSet& scratch);

Status check_range(const HandleInfo& source, const HandleInfo& destination, const RangeOp& op);

}  // namespace wherry::detail
