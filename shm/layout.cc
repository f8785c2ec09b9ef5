#include "shm/layout.h"

#include <bit>
#include <string>

namespace wherry::shm {
namespace {

constexpr uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

bool bad_ring(uint32_t slots) {
  return !std::has_single_bit(slots) || slots < kMinRingSlots || slots > kMaxRingSlots;
}

}  // namespace

Status check_sizes(const ChannelSizes& sizes) {
  const auto refuse = [](const char* what, uint32_t got) {
    return Status(Code::kInvalidArgument,
                  std::string(what) + ": wanted a power of two from " + std::to_string(kMinRingSlots) +
                      " to " + std::to_string(kMaxRingSlots) + ", got " + std::to_string(got) +
                      "; choose one of these");
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
    return {Code::kVersionMismatch, "segment: wanted Wherry's magic number, got another; is this an engine of ours?"};
  }
  if (header.layout_major != kLayoutMajor) {
    return {Code::kVersionMismatch, "segment layout: wanted major version " + std::to_string(kLayoutMajor) + ", got " +
                                        std::to_string(header.layout_major) +
                                        "; install client library and engine of one release"};
  }
  const ChannelSizes sizes{header.submission_slots, header.notification_slots};
  if (Status status = check_sizes(sizes); !status.ok()) return status.with_context("segment header");
  // Offsets are taken from the header as they are, so that a later minor version may lay things out
  // differently; what counts is that each part lies inside the segment, aligned.
  const auto lies_inside = [&](uint64_t offset, uint64_t bytes) {
    return offset >= sizeof(SegmentHeader) && offset % kWordSpacing == 0 && offset <= segment_bytes &&
           bytes <= segment_bytes - offset;
  };
  const auto slots = [](uint32_t count) { return uint64_t{count} * sizeof(Slot); };
  bool good = header.kind == static_cast<uint32_t>(kind) && header.total_bytes <= segment_bytes &&
              header.completion_slots == sizes.completion_slots();
  if (kind == SegmentKind::kC2e) {
    good = good && lies_inside(header.words_offset, sizeof(ClientWords)) &&
           lies_inside(header.submission_offset, slots(header.submission_slots));
  } else {
    good = good && lies_inside(header.words_offset, sizeof(EngineWords)) &&
           lies_inside(header.completion_offset, slots(header.completion_slots)) &&
           lies_inside(header.inflight_offset, header.completion_slots * sizeof(uint64_t)) &&
           lies_inside(header.counters_offset, sizeof(ChannelCounters)) &&
           (header.notification_slots == 0 ||
            lies_inside(header.notification_offset, slots(header.notification_slots)));
  }
  if (!good) {
    return {Code::kInvalidArgument, "segment header: wanted every part inside the segment's " +
                                        std::to_string(segment_bytes) + " bytes, got one outside (total " +
                                        std::to_string(header.total_bytes) + "); do not use this channel"};
  }
  return {};
}

}  // namespace wherry::shm
