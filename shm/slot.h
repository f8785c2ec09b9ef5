// The 64-byte slots of the two rings, and what a record's head and extension slots hold.
//
// Plain data that two processes share: no pointers, no bool, fixed-width types only. The client
// writes submission slots and the engine completion slots; each reader copies a slot before it
// looks at it. A record is one head slot and the extension slots behind it; only the head's
// sequence word is meaningful, and it is stored last.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace wherry::shm {

inline constexpr uint32_t kPayloadBytes = 56;
inline constexpr uint32_t kEntriesPerSlot = 7;  // 8-byte entries in an extension slot
inline constexpr uint32_t kMaxNotificationBytes = 1024;

using Payload = std::array<std::byte, kPayloadBytes>;

struct alignas(64) Slot {
  std::atomic<uint64_t> sequence;  // position + 1 once the record that begins here is whole
  Payload payload;
};
static_assert(sizeof(Slot) == 64 && offsetof(Slot, payload) == 8);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// One block: index in the source layout, index in the destination layout.
struct BlockPair {
  uint32_t source;
  uint32_t destination;
};
static_assert(sizeof(BlockPair) == 8);

enum class Op : uint8_t {
  kTransfer = 1,  // pair_count block pairs between two layouts
  kRange = 2,     // one RangeEntry between two regions or layouts
  kNotify = 3,    // no blocks; destination is the handle of a client
};

// Bits of SubmitHead::flags. Any other bit is an error.
inline constexpr uint8_t kFlagChecksum = 1;  // end-to-end checksum asked for
inline constexpr uint8_t kKnownSubmitFlags = kFlagChecksum;

struct SubmitHead {
  uint8_t op;
  uint8_t flags;
  uint8_t priority;            // 0 normal, 1 high
  uint8_t required_transport;  // TransportId, 0 = any
  uint32_t pair_count;
  uint64_t source;  // handle: generation(32) ‖ slot(32)
  uint64_t destination;
  uint64_t deadline_ns;  // the client's CLOCK_MONOTONIC; 0 = the engine's default
  uint16_t layer_first;  // half-open range; 0,0 = all layers
  uint16_t layer_end;
  uint16_t slot_count;  // head and extensions
  uint16_t notification_bytes;
  BlockPair first_pair;
  uint64_t reserved;  // must be zero
};
static_assert(sizeof(SubmitHead) == kPayloadBytes && std::is_trivially_copyable_v<SubmitHead>);
static_assert(offsetof(SubmitHead, source) == 8 && offsetof(SubmitHead, deadline_ns) == 24);
static_assert(offsetof(SubmitHead, slot_count) == 36 && offsetof(SubmitHead, first_pair) == 40);

// The extension slot of a kRange record. Offsets are bytes from the start of the region, or of the
// layout's parts laid end to end.
struct RangeEntry {
  uint64_t source_offset;
  uint64_t destination_offset;
  uint64_t length;
};
static_assert(sizeof(RangeEntry) == 24);

struct FailedEntry {
  uint32_t pair;          // index into the record's pairs
  uint8_t status;         // Code
  uint8_t wc_status;      // ibv_wc_status where verbs carried it, else 0
  uint16_t error_number;  // errno, else 0
};
static_assert(sizeof(FailedEntry) == 8);

// Bits of CompletionHead::quiet.
inline constexpr uint8_t kLocalQuiet = 1;
inline constexpr uint8_t kRemoteQuiet = 2;

struct CompletionHead {
  uint64_t request_id;  // position of the record's head slot + 1
  uint64_t bytes;       // moved and known to have arrived
  uint64_t
      start_ns;  // the engine's CLOCK_MONOTONIC: first run posted (accepted, when there was none)
  uint64_t end_ns;  // last run drained
  uint32_t failed_count;
  uint32_t vendor_error;
  uint8_t status;  // Code
  uint8_t wc_status;
  uint8_t transport;  // TransportId that carried it, 0 = none
  uint8_t quiet;      // kLocalQuiet | kRemoteQuiet
  uint16_t device;
  uint16_t error_number;
  FailedEntry first_failed;
};
static_assert(sizeof(CompletionHead) == kPayloadBytes &&
              std::is_trivially_copyable_v<CompletionHead>);
static_assert(offsetof(CompletionHead, failed_count) == 32 &&
              offsetof(CompletionHead, device) == 44);

// Head of a record in the notification ring; sender name, then the message, follow as bytes in the
// extension slots.
struct NotificationHead {
  uint64_t sequence;  // counts up per sender
  uint64_t sender_session;
  uint32_t sender_rank;
  uint16_t slot_count;
  uint16_t name_bytes;
  uint16_t message_bytes;
  uint16_t reserved16;
  uint32_t reserved32;
  uint64_t reserved[3];
};
static_assert(sizeof(NotificationHead) == kPayloadBytes);

// Slots that a record with this many pairs and notification bytes takes: the head holds the first
// pair, each extension slot seven more; a notification starts in a slot of its own.
constexpr uint32_t record_slots(uint32_t pairs, uint32_t notification_bytes) {
  const uint32_t more = pairs > 1 ? pairs - 1 : 0;
  return 1 + (more + kEntriesPerSlot - 1) / kEntriesPerSlot +
         (notification_bytes + kPayloadBytes - 1) / kPayloadBytes;
}

// Slots of a completion with this many failed entries. Never more than its record had.
constexpr uint32_t completion_slots(uint32_t failed) { return record_slots(failed, 0); }

}  // namespace wherry::shm
