#include "shm/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace wherry::shm {
namespace {

constexpr ChannelSizes kSizes{64, 128};
constexpr SegmentKind kKinds[] = {SegmentKind::kC2e, SegmentKind::kE2c};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Place {
  uint64_t offset;
  uint64_t bytes;
};

// Where the parts of a segment are, said once more and without layout.cc.
std::vector<Place> parts_of(const SegmentHeader& h, SegmentKind kind) {
  if (kind == SegmentKind::kC2e) {
    return {{h.words_offset, 1152}, {h.submission_offset, 64ull * h.submission_slots}};
  }
  std::vector<Place> parts = {{h.words_offset, 768},
                              {h.completion_offset, 64ull * h.completion_slots},
                              {h.inflight_offset, 8ull * h.completion_slots},
                              {h.counters_offset, 64}};
  if (h.notification_slots != 0) {
    parts.push_back({h.notification_offset, 64ull * h.notification_slots});
  }
  return parts;
}

TEST(ChannelSizesCheck, PowersOfTwoWithinTheBoundsAreTaken) {
  for (uint32_t slots = 8; slots <= 65536; slots *= 2) {
    EXPECT_TRUE(check_sizes({slots, 0}).ok()) << slots;
    EXPECT_TRUE(check_sizes({8, slots}).ok()) << slots;
  }
}

TEST(ChannelSizesCheck, EverythingElseIsRefusedByName) {
  for (const uint32_t slots :
       {0u, 1u, 2u, 4u, 7u, 9u, 12u, 65535u, 65537u, 131072u, 1u << 31, UINT32_MAX}) {
    const Status submission = check_sizes({slots, 64});
    EXPECT_EQ(submission.code(), Code::kInvalidArgument) << slots;
    EXPECT_TRUE(contains(submission.message(), "submission slots")) << submission.message();
    EXPECT_TRUE(contains(submission.message(), "got " + std::to_string(slots)));
    if (slots == 0) continue;  // a channel without notifications
    const Status notification = check_sizes({64, slots});
    EXPECT_EQ(notification.code(), Code::kInvalidArgument) << slots;
    EXPECT_TRUE(contains(notification.message(), "notification slots")) << notification.message();
  }
}

TEST(ChannelSizesCheck, CreditsAreTwiceTheSlotsAndARecordTakesAQuarterAtMost) {
  EXPECT_EQ(kSizes.completion_slots(), 128u);
  EXPECT_EQ(kSizes.max_record_slots(), 17u);  // a head and 16 extensions
  EXPECT_EQ((ChannelSizes{65536, 0}).completion_slots(), 131072u);
}

TEST(Header, OfEverySizePutsEachPartOnPagesOfItsOwnAndIsAccepted) {
  for (const SegmentKind kind : kKinds) {
    for (uint32_t submission = 8; submission <= 65536; submission *= 2) {
      for (uint32_t notification = 4; notification <= 65536; notification *= 2) {
        const ChannelSizes sizes{submission, notification == 4 ? 0 : notification};
        const SegmentHeader header = make_header(kind, sizes);
        std::vector<Place> parts = parts_of(header, kind);
        std::sort(parts.begin(), parts.end(),
                  [](const Place& a, const Place& b) { return a.offset < b.offset; });
        uint64_t end = sizeof(SegmentHeader);
        for (const Place& part : parts) {
          ASSERT_EQ(part.offset % 4096, 0u);
          ASSERT_GE(part.offset, end);
          end = part.offset + part.bytes;
        }
        ASSERT_LE(end, header.total_bytes);
        ASSERT_LT(header.total_bytes - end, 4096u);
        const Status good = check_header(header, kind, header.total_bytes);
        ASSERT_TRUE(good.ok()) << good.to_string();
        ASSERT_FALSE(check_header(header, kind, header.total_bytes - 1).ok());
      }
    }
  }
}

TEST(Header, SaysWhatItIsAndLeavesOutWhatIsNotThere) {
  const SegmentHeader c2e = make_header(SegmentKind::kC2e, kSizes);
  EXPECT_EQ(std::memcmp(&c2e, "WCwherry", 8), 0);
  EXPECT_EQ(c2e.kind, 1u);
  EXPECT_EQ(c2e.submission_slots, 64u);
  EXPECT_EQ(c2e.completion_slots, 128u);
  EXPECT_EQ(c2e.notification_slots, 128u);
  EXPECT_EQ(c2e.completion_offset, 0u);
  EXPECT_EQ(c2e.notification_offset, 0u);
  EXPECT_EQ(c2e.inflight_offset, 0u);
  EXPECT_EQ(c2e.counters_offset, 0u);
  EXPECT_EQ(make_header(SegmentKind::kE2c, {64, 0}).notification_offset, 0u);
  EXPECT_EQ(make_header(SegmentKind::kE2c, {64, 0}).submission_offset, 0u);
}

struct Corruption {
  const char* field;
  std::function<void(SegmentHeader&)> change;
  Code code;
  std::string text;
};

void expect_refusals(SegmentKind kind, const std::vector<Corruption>& corruptions) {
  for (const Corruption& corruption : corruptions) {
    SegmentHeader header = make_header(kind, kSizes);
    const uint64_t bytes = header.total_bytes;
    corruption.change(header);
    const Status status = check_header(header, kind, bytes);
    EXPECT_EQ(status.code(), corruption.code) << corruption.field;
    EXPECT_TRUE(contains(status.message(), corruption.text))
        << corruption.field << ": " << status.message();
  }
}

// All the ways in which an offset can be wrong.
void add_offset(std::vector<Corruption>& out, const char* field, uint64_t SegmentHeader::*offset,
                uint64_t part_bytes, uint64_t segment_bytes) {
  for (const uint64_t wrong :
       {uint64_t{0}, uint64_t{128}, uint64_t{4096 + 1}, uint64_t{4096 + 64},
        (segment_bytes - part_bytes) / 128 * 128 + 128, segment_bytes, segment_bytes + 4096,
        uint64_t{1} << 63, UINT64_MAX - 127, UINT64_MAX - part_bytes + 1}) {
    out.push_back(
        {field, [=](SegmentHeader& h) { h.*offset = wrong; }, Code::kInvalidArgument, field});
  }
}

std::vector<Corruption> common_corruptions() {
  const auto sizes = [](const char* field, uint32_t SegmentHeader::*slots, const char* text) {
    std::vector<Corruption> out;
    for (const uint32_t wrong : {1u, 7u, 65u, 131072u, UINT32_MAX}) {
      out.push_back(
          {field, [=](SegmentHeader& h) { h.*slots = wrong; }, Code::kInvalidArgument, text});
    }
    return out;
  };
  std::vector<Corruption> all = {
      {"magic", [](SegmentHeader& h) { h.magic ^= 1; }, Code::kVersionMismatch, "magic"},
      {"magic", [](SegmentHeader& h) { h.magic = 0; }, Code::kVersionMismatch, "magic"},
      {"layout_major", [](SegmentHeader& h) { h.layout_major = 2; }, Code::kVersionMismatch,
       "wanted major version 1, got 2"},
      {"layout_major", [](SegmentHeader& h) { h.layout_major = 0; }, Code::kVersionMismatch,
       "wanted major version 1, got 0"},
      {"features", [](SegmentHeader& h) { h.features = 4; }, Code::kVersionMismatch, "features"},
      {"kind", [](SegmentHeader& h) { h.kind ^= 3; }, Code::kInvalidArgument, "kind"},
      {"kind", [](SegmentHeader& h) { h.kind = 0; }, Code::kInvalidArgument, "kind"},
      {"total_bytes", [](SegmentHeader& h) { ++h.total_bytes; }, Code::kInvalidArgument,
       "total_bytes"},
      {"total_bytes", [](SegmentHeader& h) { h.total_bytes = UINT64_MAX; }, Code::kInvalidArgument,
       "total_bytes"},
      {"completion_slots", [](SegmentHeader& h) { h.completion_slots = 64; },
       Code::kInvalidArgument, "completion_slots: wanted 128, got 64"},
      {"completion_slots", [](SegmentHeader& h) { h.completion_slots = 0; }, Code::kInvalidArgument,
       "completion_slots"},
      {"submission_slots", [](SegmentHeader& h) { h.submission_slots = 128; },
       Code::kInvalidArgument, "completion_slots: wanted 256, got 128"},
      {"submission_slots", [](SegmentHeader& h) { h.submission_slots = 0; }, Code::kInvalidArgument,
       "submission slots"},
      {"submission_slots and completion_slots",
       [](SegmentHeader& h) {
         h.submission_slots = 65536;
         h.completion_slots = 131072;
       },
       Code::kInvalidArgument, "wanted a multiple of 128"},
  };
  for (uint32_t i = 0; i < 4; ++i) {
    all.push_back({"reserved", [i](SegmentHeader& h) { h.reserved[i] = 1; }, Code::kInvalidArgument,
                   "reserved"});
  }
  for (auto& c : sizes("submission_slots", &SegmentHeader::submission_slots, "submission slots"))
    all.push_back(c);
  for (auto& c :
       sizes("notification_slots", &SegmentHeader::notification_slots, "notification slots")) {
    all.push_back(c);
  }
  return all;
}

TEST(HeaderCheck, EveryFieldOfC2eThatIsWrongIsNamed) {
  std::vector<Corruption> all = common_corruptions();
  const uint64_t bytes = make_header(SegmentKind::kC2e, kSizes).total_bytes;
  add_offset(all, "words_offset", &SegmentHeader::words_offset, sizeof(ClientWords), bytes);
  add_offset(all, "submission_offset", &SegmentHeader::submission_offset, 64 * 64, bytes);
  for (uint64_t SegmentHeader::*offset :
       {&SegmentHeader::completion_offset, &SegmentHeader::notification_offset,
        &SegmentHeader::inflight_offset, &SegmentHeader::counters_offset}) {
    all.push_back({"absent part", [=](SegmentHeader& h) { h.*offset = 4096; },
                   Code::kInvalidArgument, "_offset: wanted 0"});
  }
  expect_refusals(SegmentKind::kC2e, all);
}

TEST(HeaderCheck, EveryFieldOfE2cThatIsWrongIsNamed) {
  std::vector<Corruption> all = common_corruptions();
  const uint64_t bytes = make_header(SegmentKind::kE2c, kSizes).total_bytes;
  add_offset(all, "words_offset", &SegmentHeader::words_offset, sizeof(EngineWords), bytes);
  add_offset(all, "completion_offset", &SegmentHeader::completion_offset, 128 * 64, bytes);
  add_offset(all, "notification_offset", &SegmentHeader::notification_offset, 128 * 64, bytes);
  add_offset(all, "inflight_offset", &SegmentHeader::inflight_offset, 128 * 8, bytes);
  add_offset(all, "counters_offset", &SegmentHeader::counters_offset, 64, bytes);
  all.push_back({"submission_offset", [](SegmentHeader& h) { h.submission_offset = 4096; },
                 Code::kInvalidArgument, "submission_offset: wanted 0"});
  all.push_back({"notification_slots", [](SegmentHeader& h) { h.notification_slots = 0; },
                 Code::kInvalidArgument, "notification_offset: wanted 0"});
  expect_refusals(SegmentKind::kE2c, all);
}

TEST(HeaderCheck, WhoseChannelItIsAndALaterMinorVersionAreNotJudged) {
  for (const SegmentKind kind : kKinds) {
    SegmentHeader header = make_header(kind, kSizes);
    header.layout_minor = kLayoutMinor + 1;
    header.reserved[3] = 9;  // has a meaning there
    header.engine_incarnation = UINT64_MAX;
    header.session = 1;
    header.channel = UINT32_MAX;
    EXPECT_TRUE(check_header(header, kind, header.total_bytes).ok());
    EXPECT_TRUE(check_header(header, kind, header.total_bytes + 4096).ok());  // a longer file
  }
}

TEST(HeaderCheck, PartsMayLieElsewhereAsLongAsTheyLieInside) {
  SegmentHeader header = make_header(SegmentKind::kC2e, kSizes);
  const uint64_t bytes = header.total_bytes;
  header.words_offset = 256;
  header.submission_offset = bytes - 64 * 64;
  EXPECT_TRUE(check_header(header, SegmentKind::kC2e, bytes).ok());
}

bool lies_inside(const Place& part, uint64_t segment_bytes) {
  const uint64_t end = part.offset + part.bytes;
  return part.offset % 128 == 0 && part.offset >= sizeof(SegmentHeader) && end > part.offset &&
         end <= segment_bytes;
}

// Random damage, one to four fields at once, with values at the edges: what is accepted is checked
// by hand.
TEST(HeaderCheck, NoRandomHeaderIsAcceptedWithAPartOutside) {
  std::mt19937_64 random(20'240'501);
  const auto edge = [&](uint64_t bytes) -> uint64_t {
    switch (random() % 8) {
      case 0:
        return random();
      case 1:
        return uint64_t{1} << (random() % 64);
      case 2:
        return bytes - random() % 8192;
      case 3:
        return 0 - random() % 8192;
      case 4:
        return random() % bytes / 128 * 128;
      case 5:
        return uint64_t{8} << (random() % 16);
      case 6:
        return random() % 8192 / 128 * 128;
      default:
        return random() % 3;
    }
  };
  uint64_t accepted = 0;
  uint64_t refused = 0;
  for (int round = 0; round < 400'000; ++round) {
    const SegmentKind kind = kKinds[random() % 2];
    const ChannelSizes sizes{8u << random() % 6, random() % 2 == 0 ? 0 : 8u << random() % 6};
    SegmentHeader header = make_header(kind, sizes);
    uint64_t bytes = header.total_bytes;
    for (uint64_t i = 1 + random() % 4; i != 0; --i) {
      const size_t word = 1 + random() % (sizeof(header) / 8 - 1);  // not the magic number
      if (random() % 2 == 0) {
        const uint64_t value = edge(bytes);
        std::memcpy(reinterpret_cast<char*>(&header) + word * 8, &value, 8);
      } else {
        const auto value = static_cast<uint32_t>(edge(bytes));
        std::memcpy(reinterpret_cast<char*>(&header) + word * 8 + random() % 2 * 4, &value, 4);
      }
    }
    if (random() % 8 == 0) bytes = edge(bytes);
    if (!check_header(header, kind, bytes).ok()) {
      ++refused;
      continue;
    }
    ++accepted;
    ASSERT_EQ(header.kind, static_cast<uint32_t>(kind));
    ASSERT_LE(header.total_bytes, bytes);
    ASSERT_TRUE(std::has_single_bit(header.submission_slots) && header.submission_slots <= 65536);
    ASSERT_EQ(header.completion_slots, 2 * header.submission_slots);
    for (const Place& part : parts_of(header, kind)) {
      ASSERT_TRUE(lies_inside(part, bytes)) << round << ": " << part.offset << " of " << bytes;
    }
  }
  // Both ways were taken often enough to mean something.
  EXPECT_GT(accepted, 10'000u);
  EXPECT_GT(refused, 100'000u);
}

}  // namespace
}  // namespace wherry::shm
