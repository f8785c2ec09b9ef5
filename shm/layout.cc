#include "shm/layout.h"

#include <bit>
#include <string>

namespace wherry::shm {
namespace {

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool bad_ring(uint32_t slots) {
  return !std::has_single_bit(slots) || slots < kMinRingSlots || slots > kMaxRingSlots;
}

}  // namespace

Status check_sizes(const ChannelSizes& sizes) {
  const auto refuse = [](const char* what, uint32_t got) {
    return Status(Code::kInvalidArgument, std::string(what) + ": wanted a power of two from " +
                                              std::to_string(kMinRingSlots) + " to " +
                                              std::to_string(kMaxRingSlots) + ", got " +
                                              std::to_string(got) + "; choose one of these");
  };
  if (bad_ring(sizes.submission_slots)) return refuse("submission slots", sizes.submission_slots);
  if (sizes.notification_slots != 0 && bad_ring(sizes.notification_slots)) {
    return refuse("notification slots", sizes.notification_slots);
  }
  return {};
}

SegmentHeader make_header(SegmentKind kind, const ChannelSizes& sizes) {
  SegmentHeader header{};
  header.magic = kSegmentMagic;
  header.layout_major = kLayoutMajor;
  header.layout_minor = kLayoutMinor;
  header.kind = static_cast<uint32_t>(kind);
  header.features = kFeatures;
  header.submission_slots = sizes.submission_slots;
  header.completion_slots = sizes.completion_slots();
  header.notification_slots = sizes.notification_slots;

  uint64_t end = kSegmentPage;
  const auto place = [&end](uint64_t bytes) {
    const uint64_t offset = end;
    end = round_up(end + bytes, kSegmentPage);
    return offset;
  };
  if (kind == SegmentKind::kC2e) {
    header.words_offset = place(sizeof(ClientWords));
    header.submission_offset = place(uint64_t{sizes.submission_slots} * sizeof(Slot));
  } else {
    header.words_offset = place(sizeof(EngineWords));
    header.completion_offset = place(uint64_t{sizes.completion_slots()} * sizeof(Slot));
    if (sizes.notification_slots != 0) {
      header.notification_offset = place(uint64_t{sizes.notification_slots} * sizeof(Slot));
    }
    header.inflight_offset = place(uint64_t{sizes.completion_slots()} * sizeof(uint64_t));
    header.counters_offset = place(sizeof(ChannelCounters));
  }
  header.total_bytes = end;
  return header;
}

Status check_header(const SegmentHeader& header, SegmentKind kind, uint64_t segment_bytes) {
  if (header.magic != kSegmentMagic) {
    return {Code::kVersionMismatch,
            "segment: wanted Wherry's magic number, got another; is this an engine of ours?"};
  }
  if (header.layout_major != kLayoutMajor) {
    return {Code::kVersionMismatch, "segment layout: wanted major version " +
                                        std::to_string(kLayoutMajor) + ", got " +
                                        std::to_string(header.layout_major) +
                                        "; install client library and engine of one release"};
  }
  if ((header.features & ~kFeatures) != 0) {
    return {Code::kVersionMismatch, "segment features: wanted none but " +
                                        std::to_string(kFeatures) + ", got " +
                                        std::to_string(header.features) +
                                        "; install client library and engine of one release"};
  }
  const ChannelSizes sizes{header.submission_slots, header.notification_slots};
  if (Status status = check_sizes(sizes); !status.ok()) {
    return status.with_context("segment header");
  }
  const auto refuse = [](const char* field, const std::string& wanted, uint64_t got) {
    return Status(Code::kInvalidArgument, std::string("segment header, ") + field + ": wanted " +
                                              wanted + ", got " + std::to_string(got) +
                                              "; do not use this channel");
  };
  if (header.kind != static_cast<uint32_t>(kind)) {
    return refuse("kind", std::to_string(static_cast<uint32_t>(kind)), header.kind);
  }
  if (header.total_bytes > segment_bytes) {
    return refuse("total_bytes", "at most " + std::to_string(segment_bytes), header.total_bytes);
  }
  if (header.completion_slots != sizes.completion_slots()) {
    return refuse("completion_slots", std::to_string(sizes.completion_slots()),
                  header.completion_slots);
  }
  // Offsets are taken from the header as they are, so that a later minor version may lay things out
  // differently; what counts is that each part lies inside the segment, aligned.
  struct Part {
    const char* field;
    uint64_t offset;
    uint64_t bytes;  // 0: not in this segment
  };
  const bool c2e = kind == SegmentKind::kC2e;
  const auto slots = [](uint32_t count) { return uint64_t{count} * sizeof(Slot); };
  const Part parts[] = {
      {"words_offset", header.words_offset, c2e ? sizeof(ClientWords) : sizeof(EngineWords)},
      {"submission_offset", header.submission_offset, c2e ? slots(header.submission_slots) : 0},
      {"completion_offset", header.completion_offset, c2e ? 0 : slots(header.completion_slots)},
      {"notification_offset", header.notification_offset,
       c2e ? 0 : slots(header.notification_slots)},
      {"inflight_offset", header.inflight_offset,
       c2e ? 0 : header.completion_slots * sizeof(uint64_t)},
      {"counters_offset", header.counters_offset, c2e ? 0 : sizeof(ChannelCounters)},
  };
  for (const Part& part : parts) {
    if (part.bytes == 0) {
      if (part.offset != 0) return refuse(part.field, "0, for it is not here", part.offset);
      continue;
    }
    if (part.offset < sizeof(SegmentHeader) || part.offset % kWordSpacing != 0 ||
        part.offset > segment_bytes || part.bytes > segment_bytes - part.offset) {
      return refuse(part.field,
                    "a multiple of " + std::to_string(kWordSpacing) + " with " +
                        std::to_string(part.bytes) + " bytes behind it in a segment of " +
                        std::to_string(segment_bytes),
                    part.offset);
    }
  }
  // A later minor version may have given these a meaning, and then offers what we do not use.
  for (const uint64_t reserved : header.reserved) {
    if (reserved != 0 && header.layout_minor <= kLayoutMinor) {
      return refuse("reserved", "0", reserved);
    }
  }
  return {};
}

}  // namespace wherry::shm
