#include "shm/error_log.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

class ErrorLog : public ::testing::Test {
 protected:
  explicit ErrorLog(uint32_t entries = 4)
      : area_(entries), log_(bytes(), area_.size() * sizeof(ErrorEntry)) {}

  std::byte* bytes() { return reinterpret_cast<std::byte*>(area_.data()); }
  std::vector<ErrorRecord> read() {
    return read_error_log(bytes(), area_.size() * sizeof(ErrorEntry));
  }

  std::vector<ErrorEntry> area_;
  ErrorLogWriter log_;
};

TEST_F(ErrorLog, AnEmptyLogHasNoRecords) { EXPECT_TRUE(read().empty()); }

TEST_F(ErrorLog, ARepeatedErrorTakesOneEntryWithCountTimesAndLastText) {
  EXPECT_TRUE(log_.record(ErrorId::kClientViolation, "prefill/0", "cursor 7 past 5", 100));
  EXPECT_TRUE(log_.record(ErrorId::kClientViolation, "prefill/0", "cursor 9 past 8", 250));
  const std::vector<ErrorRecord> records = read();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].error, static_cast<uint32_t>(ErrorId::kClientViolation));
  EXPECT_EQ(records[0].subject, "prefill/0");
  EXPECT_EQ(records[0].count, 2u);
  EXPECT_EQ(records[0].first_wall_ns, 100u);
  EXPECT_EQ(records[0].last_wall_ns, 250u);
  EXPECT_EQ(records[0].text, "cursor 9 past 8");
  EXPECT_FALSE(records[0].torn);
}

TEST_F(ErrorLog, AShorterTextLeavesNothingOfALongerOneBehind) {
  EXPECT_TRUE(log_.record(ErrorId::kInternal, "x", "a rather long text", 1));
  EXPECT_TRUE(log_.record(ErrorId::kInternal, "x", "short", 2));
  EXPECT_EQ(read()[0].text, "short");
}

TEST_F(ErrorLog, ErrorAndSubjectTellEntriesApart) {
  EXPECT_TRUE(log_.record(ErrorId::kClientLost, "a/0", "", 1));
  EXPECT_TRUE(log_.record(ErrorId::kClientLost, "b/0", "", 2));
  EXPECT_TRUE(log_.record(ErrorId::kRegionBroken, "a/0", "", 3));
  EXPECT_EQ(read().size(), 3u);
}

TEST_F(ErrorLog, AFullLogRefusesNewKeysAndGoesOnCountingTheOnesItHas) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(log_.record(ErrorId::kClientLost, std::to_string(i), "", 1));
  }
  EXPECT_FALSE(log_.record(ErrorId::kClientLost, "one too many", "", 2));
  EXPECT_TRUE(log_.record(ErrorId::kClientLost, "3", "", 3));
  ASSERT_EQ(read().size(), 4u);
  EXPECT_EQ(read()[3].count, 2u);
}

class LargeErrorLog : public ErrorLog {
 protected:
  LargeErrorLog() : ErrorLog(kErrorLogBytes / sizeof(ErrorEntry)) {}
};

TEST_F(LargeErrorLog, ManySubjectsOfOneErrorShareAnEntryAndLeaveRoomForOtherErrors) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(log_.record(ErrorId::kClientLost, "client-" + std::to_string(i), "hung up", 1));
  }
  EXPECT_TRUE(log_.record(ErrorId::kInternal, "x", "a bug", 2));
  std::vector<ErrorRecord> records = read();
  ASSERT_EQ(records.size(), kErrorSubjects + 2);
  EXPECT_EQ(records[0].subject, "client-0");
  EXPECT_EQ(records[kErrorSubjects].subject, kOtherSubjects);
  EXPECT_EQ(records[kErrorSubjects].count, 1000u - kErrorSubjects);
  EXPECT_EQ(records[kErrorSubjects].text, "client-999: hung up");
  EXPECT_EQ(records.back().text, "a bug");
  EXPECT_TRUE(log_.record(ErrorId::kClientLost, "client-3", "", 3));
  EXPECT_EQ(read()[3].count, 2u) << "those with an entry keep it";
}

TEST_F(ErrorLog, LongSubjectsAndTextsAreCutAndStillFound) {
  const std::string subject(200, 's');
  EXPECT_TRUE(log_.record(ErrorId::kInternal, subject, std::string(1000, 't'), 1));
  EXPECT_TRUE(log_.record(ErrorId::kInternal, subject, std::string(1000, 't'), 2));
  ASSERT_EQ(read().size(), 1u);
  EXPECT_EQ(read()[0].subject, std::string(kErrorSubjectBytes, 's'));
  EXPECT_EQ(read()[0].text, std::string(kErrorTextBytes, 't'));
}

TEST_F(ErrorLog, AnEntryWhoseWriterDiedInsideItIsReadAndMarkedTorn) {
  EXPECT_TRUE(log_.record(ErrorId::kInternal, "x", "text", 1));
  area_[0].version.begin_write();
  ASSERT_EQ(read().size(), 1u);
  EXPECT_TRUE(read()[0].torn);
  EXPECT_EQ(read()[0].text, "text");
}

TEST_F(ErrorLog, AnExportIsTextWithOneLineAnEntryAndNothingUnprintable) {
  EXPECT_TRUE(log_.record(ErrorId::kClientLost, "a/0", "gone\n\x1b[31m", 1'000'000'000));
  EXPECT_TRUE(log_.record(ErrorId::kInternal, "", "odd", 2'000'000'000));
  const tests::TemporaryDirectory directory;
  ASSERT_TRUE(export_error_log(read(), "errors of engine x", directory / "log").ok());
  EXPECT_EQ(
      tests::read_file(directory / "log"),
      "errors of engine x\n"
      "client_lost a/0 count=1 first=1970-01-01T00:00:01.000Z last=1970-01-01T00:00:01.000Z: "
      "gone??[31m\n"
      "internal  count=1 first=1970-01-01T00:00:02.000Z last=1970-01-01T00:00:02.000Z: odd\n");
}

TEST_F(ErrorLog, AnExportThatCannotBeWrittenNamesThePath) {
  const Status status = export_error_log({}, "title", "/nonexistent/log");
  EXPECT_EQ(status.code(), Code::kNoResources);
  EXPECT_NE(status.message().find("/nonexistent/log"), std::string::npos);
}

TEST(ErrorName, NumbersOfLaterReleasesHaveANameToo) {
  EXPECT_EQ(error_name(static_cast<uint32_t>(ErrorId::kInternal)), "internal");
  EXPECT_EQ(error_name(static_cast<uint32_t>(ErrorId::kConfig)), "config");
  EXPECT_EQ(error_name(4000), "error_4000");
}

}  // namespace
}  // namespace wherry::shm
