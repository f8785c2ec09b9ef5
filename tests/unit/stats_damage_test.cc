// StatsReader against files that are cut, foreign, of other releases, or random.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <string>

#include "shm/stats_reader.h"
#include "shm/stats_writer.h"
#include "tests/support/counts.h"
#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

class StatsDamage : public ::testing::Test {
 protected:
  StatsDamage() {
    StatsOptions options;
    options.engine_name = "damaged";
    options.clients = 2;
    options.counters = 4;
    options.peers = 1;
    Result<StatsWriter> writer = StatsWriter::create(directory_ / "whole", options);
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    writer->add_poller(0, 1, 1)->records.add(1);
    writer->channel(writer->add_client({"a", 1, 2, 3, 4, 5}), 0)->bytes.add(7);
    writer->set_transport(1, "memory", 3, true, "", "");
    writer->record_error(ErrorId::kInternal, "subject", "text");
    bytes_ = tests::read_file(directory_ / "whole");
  }

  template <typename T>
  void set(size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }
  // The offset in the header of a part of a table's description.
  static size_t table(StatsTable table, size_t part) {
    return offsetof(StatsHeader, tables) + static_cast<size_t>(table) * sizeof(TableRef) + part;
  }

  Result<StatsReader> open() {
    tests::write_file(directory_ / "stats", bytes_);
    return StatsReader::open(directory_ / "stats");
  }
  Code open_code() { return open().code(); }

  // Everything a reader can be asked.
  static size_t read_all(const StatsReader& reader) {
    size_t sum = reader.identity().build.size() + reader.state().reason.size() +
                 reader.clients().size() + reader.counters().size() + reader.transports().size() +
                 reader.peers().size() + reader.devices().size() + reader.errors().size();
    for (const PollerStats* poller : reader.pollers()) {
      sum += poller->latency_ns.copy().quantile(999) + poller->queue_ns.copy().quantile(500);
    }
    return sum;
  }

  tests::TemporaryDirectory directory_;
  std::string bytes_;
};

TEST_F(StatsDamage, ACopyReadsLikeTheFile) {
  const Result<StatsReader> reader = open();
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->identity().engine_name, "damaged");
  EXPECT_EQ(reader->clients()[0].bytes, 7u);
  EXPECT_EQ(reader->errors()[0].subject, "subject");
}

TEST_F(StatsDamage, NoFileIsUnreachable) {
  EXPECT_EQ(StatsReader::open(directory_ / "nothing").code(), Code::kUnreachable);
  EXPECT_EQ(StatsReader::open(directory_ / "whole/stats").code(), Code::kUnreachable);
}

TEST_F(StatsDamage, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  EXPECT_EQ(StatsReader::open(directory_.path()).code(), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(StatsReader::open(directory_ / "pipe").code(), Code::kInvalidArgument);
}

TEST_F(StatsDamage, AFileCutAnywhereIsRefused) {
  const std::string whole = bytes_;
  for (const size_t size : {size_t{0}, size_t{1}, sizeof(StatsHeader) - 1, sizeof(StatsHeader),
                            size_t{4096}, whole.size() - 1}) {
    bytes_ = whole.substr(0, size);
    EXPECT_EQ(open_code(), Code::kInvalidArgument) << size;
  }
}

TEST_F(StatsDamage, AnotherMagicNumberIsNoStatsFile) {
  set<uint64_t>(offsetof(StatsHeader, magic), kStatsMagic + 1);
  EXPECT_EQ(open_code(), Code::kInvalidArgument);
}

TEST_F(StatsDamage, AFileThatWasNeverFinishedIsStale) {
  set<uint32_t>(offsetof(StatsHeader, version), 0);
  EXPECT_EQ(open_code(), Code::kStale);
}

TEST_F(StatsDamage, AnotherMajorVersionIsAMismatchAndNamesBoth) {
  set<uint32_t>(offsetof(StatsHeader, version), (kStatsMajor + 1) << 16);
  const Result<StatsReader> reader = open();
  EXPECT_EQ(reader.code(), Code::kVersionMismatch);
  EXPECT_NE(reader.status().message().find("wanted major version 1, got 2"), std::string::npos)
      << reader.status().message();
}

TEST_F(StatsDamage, ANewerMinorVersionIsRead) {
  set<uint32_t>(offsetof(StatsHeader, version), kStatsMajor << 16 | (kStatsMinor + 9));
  const Result<StatsReader> reader = open();
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->identity().minor, kStatsMinor + 9);
}

TEST_F(StatsDamage, LongerRowsOfANewerMinorVersionAreSteppedOver) {
  // Two peers of twice the length, at the end of a longer file.
  const size_t end = bytes_.size();
  bytes_.resize(end + 4 * sizeof(LinkRow));
  set<uint64_t>(offsetof(StatsHeader, total_bytes), bytes_.size());
  set<uint64_t>(table(StatsTable::kPeers, offsetof(TableRef, offset)), end);
  set<uint32_t>(table(StatsTable::kPeers, offsetof(TableRef, count)), 2);
  set<uint32_t>(table(StatsTable::kPeers, offsetof(TableRef, row_bytes)), 2 * sizeof(LinkRow));
  const size_t second = end + 2 * sizeof(LinkRow);
  set<uint32_t>(second + offsetof(LinkRow, state), static_cast<uint32_t>(RowState::kUsed));
  set<uint64_t>(second + offsetof(LinkRow, errors), 12);
  const Result<StatsReader> reader = open();
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ(reader->peers().size(), 1u);
  EXPECT_EQ(reader->peers()[0].errors, 12u);
}

TEST_F(StatsDamage, EveryTableThatDoesNotLieInsideTheFileIsRefused) {
  const std::string whole = bytes_;
  for (uint32_t i = 0; i < kStatsTables; ++i) {
    const auto id = static_cast<StatsTable>(i);
    const auto refused = [&](const char* what) {
      EXPECT_EQ(open_code(), Code::kInvalidArgument) << what << " of table " << i;
      bytes_ = whole;
    };
    set<uint64_t>(table(id, offsetof(TableRef, offset)), uint64_t{whole.size()} + 128);
    refused("offset past the end");
    set<uint64_t>(table(id, offsetof(TableRef, offset)), UINT64_MAX - 127);
    refused("offset that wraps");
    set<uint64_t>(table(id, offsetof(TableRef, offset)), 0);
    refused("offset in the header");
    set<uint64_t>(table(id, offsetof(TableRef, offset)), sizeof(StatsHeader) + 8);
    refused("crooked offset");
    set<uint32_t>(table(id, offsetof(TableRef, count)), UINT32_MAX);
    refused("count");
    set<uint32_t>(table(id, offsetof(TableRef, row_bytes)), 0);
    refused("row of nothing");
    set<uint32_t>(table(id, offsetof(TableRef, row_bytes)), 129);
    refused("crooked row");
  }
}

TEST_F(StatsDamage, AnErrorLogOutsideTheFileIsRefused) {
  set<uint64_t>(offsetof(StatsHeader, error_log_bytes), UINT64_MAX);
  EXPECT_EQ(open_code(), Code::kInvalidArgument);
}

TEST_F(StatsDamage, AClientsChannelsOutsideTheTableAreLeftOut) {
  uint64_t clients = 0;
  std::memcpy(&clients, bytes_.data() + table(StatsTable::kClients, offsetof(TableRef, offset)), 8);
  set<uint32_t>(clients + offsetof(ClientRow, first_channel), 1);
  set<uint32_t>(clients + offsetof(ClientRow, channel_capacity), UINT32_MAX);
  Result<StatsReader> reader = open();
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->clients()[0].bytes, 0u);  // channel 0 holds them
  set<uint32_t>(clients + offsetof(ClientRow, first_channel), UINT32_MAX);
  reader = open();
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->clients()[0].bytes, 0u);
}

TEST_F(StatsDamage, ARowWhoseWriterDiedInsideItIsReadAndMarkedTorn) {
  uint64_t clients = 0;
  std::memcpy(&clients, bytes_.data() + table(StatsTable::kClients, offsetof(TableRef, offset)), 8);
  set<uint64_t>(clients + offsetof(ClientRow, version), 3);
  const Result<StatsReader> reader = open();
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ(reader->clients().size(), 1u);
  EXPECT_TRUE(reader->clients()[0].torn);
  EXPECT_EQ(reader->clients()[0].instance, "a");
}

TEST_F(StatsDamage, RandomBytesAnywhereNeverCrashAReader) {
  const std::string whole = bytes_;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto rounds = static_cast<int>(test::counted(5000));
  int opened = 0;
  for (int round = 0; round < rounds; ++round) {
    bytes_ = whole;
    // Half of the damage to the header, where it hurts.
    const size_t range = round % 2 == 0 ? sizeof(StatsHeader) : whole.size();
    for (unsigned i = 0; i < 1 + random() % 32; ++i) {
      bytes_[random() % range] = static_cast<char>(random());
    }
    const Result<StatsReader> reader = open();
    if (!reader.ok()) continue;
    ++opened;
    read_all(*reader);
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace wherry::shm
