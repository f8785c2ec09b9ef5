// What a client may name: mappings, views and the per-client table of handles.
//
// Made by the control thread, immutable once published, read by pollers. A ClientTable is published
// by one atomic pointer and replaced as a whole; the control thread frees an old one only when
// every poller of that client has passed an epoch, and a View only when its use count is zero as
// well. Pollers never free anything.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shm/geometry.h"

namespace wherry::engine {

inline constexpr uint32_t kMaxPollers = 16;

// One mapped range of client memory. Shared by all registrations of the same backing that it
// covers.
struct Mapping {
  uint64_t backing = 0;      // names (device, inode): equal only for the same memory
  uint64_t file_offset = 0;  // of `base` in the backing
  uint64_t length = 0;
  bool writable = false;  // the mapping's protection, not anybody's right
  std::byte* base = nullptr;
  std::atomic<bool> broken{false};  // set by the SIGBUS handler: the client took pages away
};

// A contiguous piece of memory that a view names.
struct Part {
  const Mapping* mapping = nullptr;
  uint64_t offset = 0;  // in the mapping
  uint64_t length = 0;
  uint64_t begin = 0;  // bytes of the parts before this one: where it begins for byte ranges

  std::byte* address() const { return mapping->base + offset; }
  uint64_t backing_offset() const { return mapping->file_offset + offset; }
};

enum class ViewKind : uint8_t {
  kRegion,  // bytes; parts.size() == 1
  kLayout,  // blocks by `geometry`
  kClient,  // somebody to notify; no parts
};

inline constexpr uint8_t kRightRead = 1;
inline constexpr uint8_t kRightWrite = 2;

// How many requests of each poller hold a view. One writer each; the control thread sums them up.
struct UseCount {
  alignas(64) std::atomic<uint32_t> value{0};
};

// The bounds of a view's parts in one backing: a cheap first answer to "may these two overlap?".
struct Extent {
  uint64_t backing = 0;
  uint64_t begin = 0;  // in the backing
  uint64_t end = 0;
};

// What the channels of one session share with the control thread and, as the target of
// notifications, with other pollers. Owned through shared pointers of the control thread and of
// views.
struct SessionShared {
  uint64_t session = 0;
  // The client's handles, replaced as a whole. Never null while a channel is polled.
  std::atomic<const struct ClientTable*> table{nullptr};
  // The poller whose channel holds the session's notification ring; kNoPoller = none (any more).
  std::atomic<uint32_t> notify_poller{UINT32_MAX};
  // Notifications it has sent: their sequence numbers.
  std::atomic<uint64_t> notifications_sent{0};
};
inline constexpr uint32_t kNoPoller = UINT32_MAX;

// What a handle means.
struct View {
  uint64_t id = 0;  // unique in this engine's life: plans are cached by it
  ViewKind kind = ViewKind::kRegion;
  Geometry geometry;  // kLayout only
  std::vector<Part> parts;
  // Derived from the parts by finish_view().
  uint64_t total_bytes = 0;
  bool overlaps_itself = false;          // two parts share bytes: never a destination
  std::vector<Extent> extents;           // one per backing
  std::shared_ptr<SessionShared> owner;  // whose memory it is, or whom to notify
  // Keeps the mappings alive; order as in `parts` does not matter.
  std::vector<std::shared_ptr<const Mapping>> mappings;
  mutable std::array<UseCount, kMaxPollers> uses;

  uint64_t use_count() const {
    uint64_t sum = 0;
    for (const UseCount& use : uses) sum += use.value.load(std::memory_order_acquire);
    return sum;
  }
};

// Fills in what is derived from the parts (Part::begin, total_bytes, overlaps_itself, extents). To
// be called by whoever built the view, before anybody else sees it.
void finish_view(View& view);

struct TableEntry {
  uint32_t generation = 0;     // of the slot; odd or even means nothing, equality does
  uint8_t rights = 0;          // kRightRead | kRightWrite: of this client, on this view
  const View* view = nullptr;  // null: nothing here
};

struct ClientTable {
  std::vector<TableEntry> entries;  // by slot

  // The entry a handle names, or null when it is stale or was never given out.
  const TableEntry* find(uint64_t handle) const {
    const auto slot = static_cast<uint32_t>(handle);
    const auto generation = static_cast<uint32_t>(handle >> 32);
    if (slot >= entries.size()) return nullptr;
    const TableEntry& entry = entries[slot];
    return entry.view != nullptr && entry.generation == generation ? &entry : nullptr;
  }
};

inline uint64_t make_handle(uint32_t generation, uint32_t slot) {
  return uint64_t{generation} << 32 | slot;
}

}  // namespace wherry::engine
