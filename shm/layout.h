// Where things lie in the two segments of a channel, and the header that says so.
//
// The engine writes both headers before anybody maps them. A reader checks the header once against
// the segment's size, copies what it needs into private memory and never looks at it again. Every
// capacity is a run-time value of the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shm/slot.h"
#include "shm/status.h"
#include "shm/words.h"

namespace wherry::shm {

inline constexpr uint64_t kSegmentMagic = 0x7972726568774357;  // "WCwherry", little endian
inline constexpr uint16_t kLayoutMajor = 1;                    // must match
inline constexpr uint16_t kLayoutMinor = 0;  // the lower one of the two sides holds
inline constexpr uint64_t kFeatures = 0;     // bits both sides may offer; the intersection holds

inline constexpr uint32_t kMinRingSlots = 8;
inline constexpr uint32_t kMaxRingSlots = 65536;
inline constexpr uint32_t kSegmentPage = 4096;

enum class SegmentKind : uint32_t { kC2e = 1, kE2c = 2 };

// Sizes of a channel. The completion ring, the credits and the in-flight table have twice the slots
// of the submission ring.
struct ChannelSizes {
  uint32_t submission_slots = 0;    // a power of two, kMinRingSlots to kMaxRingSlots
  uint32_t notification_slots = 0;  // a power of two, or 0: only the first channel has any

  uint32_t completion_slots() const { return submission_slots * 2; }
  uint32_t max_record_slots() const { return submission_slots / 4 + 1; }
};

struct SegmentHeader {
  uint64_t magic;
  uint16_t layout_major;
  uint16_t layout_minor;
  uint32_t kind;  // SegmentKind
  uint64_t features;
  uint64_t total_bytes;
  uint64_t engine_incarnation;
  uint64_t session;
  uint32_t channel;
  uint32_t submission_slots;
  uint32_t completion_slots;
  uint32_t notification_slots;
  // Offsets in bytes from the start of this segment; 0 = not in this segment.
  uint64_t words_offset;
  uint64_t submission_offset;
  uint64_t completion_offset;
  uint64_t notification_offset;
  uint64_t inflight_offset;
  uint64_t counters_offset;
  uint64_t reserved[4];  // zero
};
static_assert(sizeof(SegmentHeader) == 144 && std::is_trivially_copyable_v<SegmentHeader>);
static_assert(offsetof(SegmentHeader, channel) == 48 &&
              offsetof(SegmentHeader, words_offset) == 64);

// The header (offsets and total size) of one segment for these sizes. Sizes must be valid.
SegmentHeader make_header(SegmentKind kind, const ChannelSizes& sizes);

// INVALID_ARGUMENT when the sizes are no power of two or out of bounds.
Status check_sizes(const ChannelSizes& sizes);

// Whether a header read from a segment of `segment_bytes` describes what this build understands;
// VERSION_MISMATCH names both versions, INVALID_ARGUMENT the field that does not fit.
Status check_header(const SegmentHeader& header, SegmentKind kind, uint64_t segment_bytes);

}  // namespace wherry::shm
