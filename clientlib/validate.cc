#include "clientlib/validate.h"

#include <algorithm>
#include <string>

#include "shm/slot.h"

namespace wherry::detail {
namespace {

std::string number(uint64_t value) { return std::to_string(value); }

Status broken_handle(const char* side, uint64_t handle, const HandleInfo& info) {
  if (info.broken == Code::kStale) {
    return {Code::kStale,
            std::string(side) + " handle " + number(handle) +
                ": wanted one whose owner lives, got one of a former life; find it again"};
  }
  return {info.broken,
          std::string(side) + " handle " + number(handle) +
              ": wanted one the engine knows, got one it refused when this client attached "
              "again; engine_state() says why"};
}

Status find_handle(const HandleTable& table, const char* side, uint64_t handle, HandleInfo* info) {
  if (!table.find(handle, info)) {
    return {Code::kStale, std::string(side) + " handle: wanted one in use, got " + number(handle) +
                              "; register or find it first, and do not use it after freeing it"};
  }
  if (info->broken != Code::kOk) return broken_handle(side, handle, *info);
  return {};
}

Status wrong_kind(const char* side, const char* wanted, uint64_t handle) {
  return {Code::kInvalidArgument, std::string(side) + " handle: wanted " + wanted + ", got " +
                                      number(handle) +
                                      ", which is another kind; pass the right one"};
}

Status check_layers(const HandleInfo& source, const HandleInfo& destination,
                    const TransferOptions& options) {
  if (options.layer_begin == 0 && options.layer_end == 0) return {};
  if (source.geometry.kind == LayoutKind::kDescriptorList &&
      destination.geometry.kind == LayoutKind::kDescriptorList) {
    return {
        Code::kUnsupported,
        "layer range: wanted none between two descriptor lists, got one; transfer whole entries"};
  }
  if (options.layer_begin >= options.layer_end || options.layer_end > source.geometry.num_layers) {
    return {Code::kOutOfRange,
            "layer range: wanted begin < end <= " + number(source.geometry.num_layers) + ", got " +
                number(options.layer_begin) + ".." + number(options.layer_end) +
                "; name layers the layouts have (0..0 = all)"};
  }
  return {};
}

// The largest id, after checking that all of them exist.
Status check_ids(const char* side, std::span<const BlockId> ids, uint32_t blocks,
                 BlockId* largest) {
  *largest = 0;
  for (BlockId id : ids) *largest = std::max(*largest, id);
  if (*largest < blocks) return {};
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [blocks](BlockId id) { return id >= blocks; });
  return {Code::kOutOfRange, std::string(side) + " block " + number(uint64_t(bad - ids.begin())) +
                                 ": wanted an id below " + number(blocks) + ", got " +
                                 number(*bad) + "; name blocks the layout has"};
}

Status check_length(std::string_view notification, uint32_t max_record_slots) {
  const uint64_t longest = std::min<uint64_t>(shm::kMaxNotificationBytes,
                                              uint64_t{max_record_slots - 1} * shm::kPayloadBytes);
  if (notification.size() <= longest) return {};
  return {Code::kInvalidArgument, "notification: wanted at most " + number(longest) +
                                      " bytes, got " + number(notification.size()) +
                                      "; send less, or open the channel with more slots"};
}

bool ascending(std::span<const BlockId> ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<BlockId>()) == ids.end();
}

}  // namespace

Status BlockSet::reserve(BlockId largest) {
  const uint64_t wanted = uint64_t{largest} / 64 + 1;
  if (wanted <= words_) return {};
  const uint64_t words = std::max(wanted, 2 * words_);
  // calloc: pages that no id falls into cost nothing.
  bits_.reset(static_cast<uint64_t*>(std::calloc(words, sizeof(uint64_t))));
  words_ = bits_ == nullptr ? 0 : words;
  if (words_ != 0) return {};
  return {Code::kNoResources, "checking block ids: wanted " + number(words * 8) +
                                  " bytes of memory, got none; free some"};
}

Status find_layout_handle(const HandleTable& table, const char* side, uint64_t handle,
                          HandleInfo* info) {
  if (Status status = find_handle(table, side, handle, info); !status.ok()) return status;
  const bool fits = info->kind == HandleKind::kLayout || info->kind == HandleKind::kFound;
  return fits ? Status() : wrong_kind(side, "a layout", handle);
}

Status find_memory_handle(const HandleTable& table, const char* side, uint64_t handle,
                          HandleInfo* info) {
  if (Status status = find_handle(table, side, handle, info); !status.ok()) return status;
  return info->kind != HandleKind::kClient ? Status()
                                           : wrong_kind(side, "a region or layout", handle);
}

Status find_client_handle(const HandleTable& table, uint64_t handle, HandleInfo* info) {
  if (Status status = find_handle(table, "client", handle, info); !status.ok()) return status;
  return info->kind == HandleKind::kClient ? Status() : wrong_kind("client", "a client", handle);
}

Status check_options(const TransferOptions& options, uint32_t max_record_slots) {
  if (options.head_slice.has_value()) {
    return {Code::kUnsupported,
            "head slice: wanted none, got one; this build moves whole blocks only"};
  }
  if (options.deadline_ns != 0 && options.timeout_ns != 0) {
    return {Code::kInvalidArgument,
            "deadline: wanted an absolute deadline or a timeout, got both; set one of them to 0"};
  }
  if (options.priority > Priority::kHigh) {
    return {Code::kInvalidArgument, "priority: wanted normal or high, got " +
                                        number(uint64_t(options.priority)) + "; use one of these"};
  }
  if (options.required_transport > TransportKind::kNull) {
    return {Code::kInvalidArgument, "required transport: wanted one of TransportKind, got " +
                                        number(uint64_t(options.required_transport)) +
                                        "; use kAny or one that transports() lists"};
  }
  return check_length(options.notification, max_record_slots);
}

Status check_notification(std::string_view bytes, uint32_t max_record_slots) {
  if (!bytes.empty()) return check_length(bytes, max_record_slots);
  return {Code::kInvalidArgument, "notification: wanted at least 1 byte, got 0; send something"};
}

Status check_transfer(const HandleInfo& source, const HandleInfo& destination, bool same,
                      std::span<const BlockId> source_blocks,
                      std::span<const BlockId> destination_blocks, const TransferOptions& options,
                      BlockSet& scratch) {
  if (source_blocks.size() != destination_blocks.size() || source_blocks.size() > UINT32_MAX) {
    return {Code::kInvalidArgument, "block lists: wanted two of one length below 2^32, got " +
                                        number(source_blocks.size()) + " source and " +
                                        number(destination_blocks.size()) +
                                        " destination blocks; pair them up"};
  }
  if (!destination.writable) {
    return {
        Code::kNotPermitted,
        "destination layout: wanted the right to write, got one for reading only; have its owner "
        "publish it with Rights::kReadWrite"};
  }
  if (Status s = check_compatible(source.geometry, destination.geometry); !s.ok()) return s;
  if (Status s = check_layers(source, destination, options); !s.ok()) return s;
  BlockId largest = 0;
  if (Status s = check_ids("source", source_blocks, source.geometry.num_blocks, &largest);
      !s.ok()) {
    return s;
  }
  BlockId largest_destination = 0;
  if (Status s = check_ids("destination", destination_blocks, destination.geometry.num_blocks,
                           &largest_destination);
      !s.ok()) {
    return s;
  }
  if (!same && ascending(destination_blocks)) return {};

  if (Status s = scratch.reserve(std::max(largest, largest_destination)); !s.ok()) return s;
  Status status;
  size_t inserted = 0;
  for (; inserted < destination_blocks.size(); ++inserted) {
    if (scratch.insert(destination_blocks[inserted])) continue;
    status = {Code::kOverlap,
              "destination block " + number(inserted) + ": wanted each id once, got " +
                  number(destination_blocks[inserted]) + " again; drop one of the two"};
    break;
  }
  for (size_t i = 0; same && status.ok() && i < source_blocks.size(); ++i) {
    if (!scratch.contains(source_blocks[i])) continue;
    status = {Code::kOverlap, "source block " + number(i) +
                                  ": wanted none that is a destination too, got " +
                                  number(source_blocks[i]) + "; copy in two steps"};
  }
  scratch.erase(destination_blocks.first(inserted));
  return status;
}

Status check_range(const HandleInfo& source, const HandleInfo& destination, const RangeOp& op) {
  if (op.length == 0) {
    return {Code::kInvalidArgument, "length: wanted at least 1 byte, got 0; leave the op out"};
  }
  const auto outside = [&op](const HandleInfo& side, uint64_t offset) {
    return offset > side.total_bytes || op.length > side.total_bytes - offset;
  };
  const auto refuse = [&op](const char* name, const HandleInfo& side, uint64_t offset) {
    return Status(Code::kOutOfRange, std::string(name) + " range: wanted one inside " +
                                         number(side.total_bytes) + " bytes, got " +
                                         number(op.length) + " bytes at " + number(offset) +
                                         "; name bytes that are there");
  };
  if (outside(source, op.source_offset)) return refuse("source", source, op.source_offset);
  if (outside(destination, op.destination_offset)) {
    return refuse("destination", destination, op.destination_offset);
  }
  if (!destination.writable) {
    return {
        Code::kNotPermitted,
        "destination: wanted the right to write, got one for reading only; have its owner publish "
        "it with Rights::kReadWrite"};
  }
  if (op.source.value == op.destination.value &&
      op.source_offset < op.destination_offset + op.length &&
      op.destination_offset < op.source_offset + op.length) {
    return {Code::kOverlap, "range: wanted source and destination apart, got " + number(op.length) +
                                " bytes from " + number(op.source_offset) + " to " +
                                number(op.destination_offset) +
                                " of one layout; copy in two steps"};
  }
  return {};
}

}  // namespace wherry::detail
