// A channel of the client library when memory runs out, at each allocation in turn: no exception
// leaves it, what is refused was not accepted, and what was accepted ends as it should.
#include <gtest/gtest.h>

#include "clientlib/channel.h"
#include "tests/support/fake_engine_end.h"
#include "tests/support/scarce_memory.h"

namespace wherry::test {
namespace {

class NoMemory : public FakeChannel, public ::testing::WithParamInterface<uint64_t> {
 protected:
  using Request = Result<TransferCompleteNotification>;

  // Until it is accepted. A refusal has to have left the ring alone.
  template <typename Call>
  TransferCompleteNotification accepted(const Call& call) {
    for (;;) {
      Request request = Status(Code::kInternal, "");
      {
        Scarcity scarce;
        request = call();
      }
      if (request.ok()) return *request;
      EXPECT_EQ(request.code(), Code::kNoResources) << request.status().to_string();
      EXPECT_FALSE(engine->submissions.ready()) << "refused, and yet there is a record";
    }
  }

  static void until_complete(TransferCompleteNotification& request) {
    Scarcity scarce;
    while (!request.poll()) {
    }
  }

  std::vector<ReadRecord> read_all() {
    std::vector<ReadRecord> records;
    ReadRecord record;
    while (engine->read(&record)) records.push_back(record);
    engine->publish_head();
    return records;
  }

  // All of it once, with some allocations failing.
  void run() {
    open(64, {}, 64);  // 17 slots a record: 113 pairs
    Channel face(channel);
    const std::vector<BlockId> many = ids(0, 500);
    const std::vector<BlockId> few = ids(0, 20);
    TransferOptions options;
    options.notification = "data is there, and this is longer than a short string";

    TransferCompleteNotification small =
        accepted([&] { return face.try_execute_local_transfer(source, destination, few, few); });
    const std::vector<ReadRecord> first = read_all();
    ASSERT_EQ(first.size(), 1u);
    TransferCompleteNotification split = accepted(
        [&] { return face.try_execute_local_transfer(source, destination, many, many, options); });
    std::vector<ReadRecord> records = read_all();
    ASSERT_EQ(records.size(), 3u);

    // Part of it fails: lists of failed blocks have to grow.
    std::vector<shm::FailedEntry> failed;
    for (uint32_t i = 0; i < 10; ++i) {
      failed.push_back({2 * i, static_cast<uint8_t>(Code::kTransport), 0, 0});
    }
    engine->complete(first[0], Code::kTransport, 10, failed);
    until_complete(small);
    EXPECT_EQ(small.completion()->failed.size(), 10u);
    EXPECT_EQ(small.completion()->blocks_ok, 10u);
    {
      Scarcity scarce;
      channel->drive();
      channel->drive();
    }
    for (const ReadRecord& one : read_all()) records.push_back(one);
    while (records.size() < 5) {
      channel->drive();
      for (const ReadRecord& one : read_all()) records.push_back(one);
    }
    engine->complete(records[0], Code::kOk, 113);
    engine->complete(records[1], Code::kTimedOut, 0);
    for (size_t i = 2; i < 5; ++i) engine->complete(records[i], Code::kOk, 100);
    until_complete(split);
    EXPECT_EQ(split.completion()->status, Code::kTimedOut);
    EXPECT_EQ(split.completion()->blocks_ok, 387u);
    ASSERT_EQ(split.completion()->failed.size(), 113u);
    EXPECT_EQ(split.completion()->failed.front().index, 113u);

    Request all = Status(Code::kInternal, "");
    while (!all.ok()) {
      std::vector<TransferCompleteNotification> members = {small, split};
      Scarcity scarce;
      all = TransferCompleteNotification::aggregate(std::move(members));
    }
    until_complete(*all);
    EXPECT_EQ(all->completion()->failed.size(), 123u);

    std::vector<std::string> texts;
    for (uint64_t i = 0; i < 3; ++i) engine->deliver("prefill", 1, std::string(100, 'a'), i);
    while (texts.size() < 3) {
      Result<std::vector<Notification>> got = Status(Code::kInternal, "");
      {
        Scarcity scarce;
        got = face.poll_notifications();
      }
      if (!got.ok()) {
        EXPECT_EQ(got.code(), Code::kNoResources);
        continue;
      }
      for (const Notification& one : *got) texts.push_back(one.bytes);
    }
    EXPECT_EQ(texts, std::vector<std::string>(3, std::string(100, 'a')));
    EXPECT_EQ(engine->client->notification_cursor.load(), engine->notifications.position());

    // A cancel, and then the engine's death with records of both kinds and unpublished blocks.
    TransferCompleteNotification posted = accepted([&] {
      return face.copy_range({region, 0, region, 500, 100});
    });
    records = read_all();
    TransferCompleteNotification dying = accepted(
        [&] { return face.try_execute_local_transfer(source, destination, many, many, options); });
    read_all();
    Status status(Code::kNoResources, "");
    while (status.code() == Code::kNoResources) {
      Scarcity scarce;
      status = dying.cancel();
    }
    EXPECT_TRUE(status.ok());
    engine->inflight.mark(0, records[0].id);
    engine->die();
    until_complete(posted);
    until_complete(dying);
    EXPECT_EQ(posted.completion()->status, Code::kEngineGone);
    EXPECT_EQ(dying.completion()->status, Code::kCancelled);
    EXPECT_EQ(dying.completion()->blocks_failed, 500u);
    EXPECT_EQ(dying.completion()->failed.size(), 500u);
    for (uint32_t i = 0; i < 500; ++i) EXPECT_EQ(dying.completion()->failed[i].index, i);
  }
};
INSTANTIATE_TEST_SUITE_P(OneOrMany, NoMemory, ::testing::Values(1, 5));

TEST_P(NoMemory, NothingIsLostWhereverItRunsOut) {
  uint64_t first = 0;
  do {
    SCOPED_TRACE("allocation " + std::to_string(first));
    scarcity_begin(first++, GetParam());
    run();
  } while (scarcity_hit() && !HasFatalFailure());
  EXPECT_GT(first, 30u) << "so many places there are at least";
}

}  // namespace
}  // namespace wherry::test
