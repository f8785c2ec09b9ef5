#include "shm/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace wherry {
namespace {

struct GoldenCode {
  int number;
  const char* name;
};

// Numbers travel in completion records and names over the control socket: a line may be added at
// the end, and none may ever change.
constexpr GoldenCode kGolden[] = {
    {0, "OK"},
    {1, "INVALID_ARGUMENT"},
    {2, "OUT_OF_RANGE"},
    {3, "OVERLAP"},
    {4, "INCOMPATIBLE_LAYOUT"},
    {5, "STALE"},
    {6, "UNKNOWN_INSTANCE"},
    {7, "ALREADY_EXISTS"},
    {8, "NOT_PERMITTED"},
    {9, "UNSUPPORTED"},
    {10, "NO_TRANSPORT"},
    {11, "UNREACHABLE"},
    {12, "TIMED_OUT"},
    {13, "CANCELLED"},
    {14, "REMOTE_ACCESS"},
    {15, "TRANSPORT"},
    {16, "STORAGE"},
    {17, "CHECKSUM"},
    {18, "MEMORY_FAULT"},
    {19, "NO_RESOURCES"},
    {20, "RING_FULL"},
    {21, "NO_CREDIT"},
    {22, "BOX_FULL"},
    {23, "DRAINING"},
    {24, "VERSION_MISMATCH"},
    {25, "ABORTED"},
    {26, "NOT_STARTED"},
    {27, "ENGINE_GONE"},
    {28, "INTERNAL"},
};

TEST(StatusCode, EachNumberHasTheNameItAlwaysHad) {
  int next = 0;
  for (const GoldenCode& golden : kGolden) {
    EXPECT_EQ(golden.number, next++);
    EXPECT_EQ(code_name(static_cast<Code>(golden.number)), golden.name);
    const std::optional<Code> code = code_from_name(golden.name);
    ASSERT_TRUE(code.has_value()) << golden.name;
    EXPECT_EQ(static_cast<int>(*code), golden.number);
  }
  EXPECT_EQ(kCodeCount, next) << "a new code needs a line here, at the end";
}

// The enumerators that code compares with, by number: a swap of two would pass the test above.
TEST(StatusCode, TheEnumeratorsStandForTheirNumbers) {
  EXPECT_EQ(static_cast<int>(Code::kOk), 0);
  EXPECT_EQ(static_cast<int>(Code::kStale), 5);
  EXPECT_EQ(static_cast<int>(Code::kTimedOut), 12);
  EXPECT_EQ(static_cast<int>(Code::kCancelled), 13);
  EXPECT_EQ(static_cast<int>(Code::kMemoryFault), 18);
  EXPECT_EQ(static_cast<int>(Code::kRingFull), 20);
  EXPECT_EQ(static_cast<int>(Code::kNoCredit), 21);
  EXPECT_EQ(static_cast<int>(Code::kBoxFull), 22);
  EXPECT_EQ(static_cast<int>(Code::kNotStarted), 26);
  EXPECT_EQ(static_cast<int>(Code::kEngineGone), 27);
  EXPECT_EQ(static_cast<int>(Code::kInternal), 28);
}

TEST(StatusCode, EveryOtherNumberIsUnknownAndNoNameLeadsToIt) {
  for (int number = kCodeCount; number < 256; ++number) {
    EXPECT_EQ(code_name(static_cast<Code>(number)), "UNKNOWN_CODE") << number;
  }
  for (const char* name : {"UNKNOWN_CODE", "", "ok", "STALE ", "CODE_3", "O"}) {
    EXPECT_FALSE(code_from_name(name).has_value()) << name;
  }
}

TEST(StatusCode, NoNameIsUsedTwice) {
  std::set<std::string_view> names;
  for (int number = 0; number < kCodeCount; ++number) {
    EXPECT_TRUE(names.insert(code_name(static_cast<Code>(number))).second) << number;
  }
}

TEST(Status, SaysItsCodeAndItsMessage) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "OK");
  const Status status(Code::kOutOfRange, "block id: wanted below 8, got 9");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), "OUT_OF_RANGE: block id: wanted below 8, got 9");
  EXPECT_EQ(Status(Code::kStale, "").to_string(), "STALE");
}

TEST(Status, AContextGoesInFrontOfAFailureAndNotOfASuccess) {
  const Status status =
      Status(Code::kStale, "handle 7").with_context("submit").with_context("op 3");
  EXPECT_EQ(status.code(), Code::kStale);
  EXPECT_EQ(status.message(), "op 3: submit: handle 7");
  EXPECT_EQ(Status().with_context("submit").to_string(), "OK");
}

TEST(Status, OfAnErrnoNamesTextAndNumber) {
  const Status status = errno_status(Code::kUnreachable, "connecting", ENOENT);
  EXPECT_EQ(status.code(), Code::kUnreachable);
  EXPECT_EQ(status.message(), "connecting: No such file or directory (errno 2)");
}

TEST(StatusResult, HoldsAValueOrTheReasonWhyThereIsNone) {
  Result<std::unique_ptr<int>> good = std::make_unique<int>(7);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good.value(), 7);
  const std::unique_ptr<int> taken = *std::move(good);
  EXPECT_EQ(*taken, 7);
  const Result<std::unique_ptr<int>> bad = Status(Code::kNoResources, "none left");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.code(), Code::kNoResources);
  EXPECT_EQ(bad.status().message(), "none left");
}

}  // namespace
}  // namespace wherry
