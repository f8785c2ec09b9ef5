// What a channel of the client library writes into its ring, and what it refuses.
#include <future>
#include <thread>

#include "clientlib/channel.h"
#include "tests/support/fake_engine_end.h"

namespace wherry {
namespace {

class ChannelSubmit : public test::FakeChannel {};

TEST_F(ChannelSubmit, ARecordCarriesHandlesPairsAndOptions) {
  open(64);
  TransferOptions options;
  options.layer_begin = 1;
  options.layer_end = 3;
  options.deadline_ns = 12345;
  options.priority = Priority::kHigh;
  options.required_transport = TransportKind::kMemory;
  options.checksum = true;
  options.notification = std::string(100, 'n');
  const std::vector<BlockId> from = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  const std::vector<BlockId> to = {20, 19, 18, 17, 16, 15, 14, 13, 12, 11};
  ASSERT_TRUE(channel->try_transfer(source, destination, from, to, options).ok());

  const test::ReadRecord record = engine->read();
  EXPECT_EQ(record.head.op, static_cast<uint8_t>(shm::Op::kTransfer));
  EXPECT_EQ(record.head.source, 100u);
  EXPECT_EQ(record.head.destination, 101u);
  EXPECT_EQ(record.head.layer_first, 1u);
  EXPECT_EQ(record.head.layer_end, 3u);
  EXPECT_EQ(record.head.deadline_ns, 12345u);
  EXPECT_EQ(record.head.priority, 1u);
  EXPECT_EQ(record.head.required_transport, 1u);
  EXPECT_EQ(record.head.flags, shm::kFlagChecksum);
  EXPECT_EQ(record.head.slot_count, shm::record_slots(10, 100));
  EXPECT_EQ(record.head.reserved, 0u);
  EXPECT_EQ(record.notification, options.notification);
  ASSERT_EQ(record.pairs.size(), from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(record.pairs[i].source, from[i]);
    EXPECT_EQ(record.pairs[i].destination, to[i]);
  }
}

TEST_F(ChannelSubmit, ACompletionResolvesTheNotification) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 3);
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->could_yield());
  EXPECT_FALSE(request->poll());
  engine->complete(engine->read(), Code::kOk, 777);
  EXPECT_TRUE(request->poll());
  Result<Completion> completion = request->wait(0);
  ASSERT_TRUE(completion.ok());
  EXPECT_TRUE(completion->ok());
  EXPECT_EQ(completion->request_id, 1u);
  EXPECT_EQ(completion->bytes, 777u);
  EXPECT_EQ(completion->blocks_ok, 3u);
  EXPECT_EQ(completion->blocks_failed, 0u);
  EXPECT_EQ(completion->transport, TransportKind::kMemory);
  EXPECT_TRUE(completion->local_quiet);
  EXPECT_NE(completion->submit_ns, 0u);
  EXPECT_FALSE(request->could_yield());
}

TEST_F(ChannelSubmit, AnEmptyListIsCompleteAtOnceAndWritesNothing) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 0);
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->could_yield());
  EXPECT_TRUE(request->wait(0)->ok());
  test::ReadRecord record;
  EXPECT_FALSE(engine->read(&record));
}

TEST_F(ChannelSubmit, AnEmptyListWithANotificationGoesToTheEngine) {
  open(64);
  TransferOptions options;
  options.notification = "done";
  ASSERT_TRUE(submit(0, 0, options).ok());
  const test::ReadRecord record = engine->read();
  EXPECT_EQ(record.head.pair_count, 0u);
  EXPECT_EQ(record.notification, "done");
}

TEST_F(ChannelSubmit, FailedBlocksComeBackByTheCallersIndex) {
  open(64);
  Result<TransferCompleteNotification> request = submit(50, 20);
  ASSERT_TRUE(request.ok());
  std::vector<shm::FailedEntry> failed;
  for (const uint32_t pair : {0u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 19u}) {
    failed.push_back({pair, static_cast<uint8_t>(Code::kTransport), 5, 11});
  }
  engine->complete(engine->read(), Code::kTransport, 10, failed);
  Result<Completion> completion = request->wait(0);
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kTransport);
  EXPECT_EQ(completion->blocks_failed, 10u);
  EXPECT_EQ(completion->blocks_ok, 10u);
  ASSERT_EQ(completion->failed.size(), 10u);
  EXPECT_EQ(completion->failed[1].index, 3u);
  EXPECT_EQ(completion->failed[9].index, 19u);
  EXPECT_EQ(completion->failed[9].wc_status, 5u);
  EXPECT_EQ(completion->failed[9].error_number, 11u);
}

TEST_F(ChannelSubmit, ARequestRefusedAsAWholeNamesTheBlockToBlame) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 20);
  engine->complete(engine->read(), Code::kOverlap, 0,
                   {{7, static_cast<uint8_t>(Code::kOverlap), 0, 0}});
  Result<Completion> completion = request->wait(0);
  EXPECT_EQ(completion->blocks_failed, 20u);
  EXPECT_EQ(completion->blocks_ok, 0u);
  ASSERT_EQ(completion->failed.size(), 1u);
  EXPECT_EQ(completion->failed[0].index, 7u);
}

TEST_F(ChannelSubmit, ARequestLargerThanARecordIsSplitIntoWholeRequestsAndMerged) {
  open(64);  // 17 slots a record: 113 pairs
  Result<TransferCompleteNotification> request = submit(0, 300);
  ASSERT_TRUE(request.ok());
  std::vector<test::ReadRecord> records;
  std::vector<BlockId> seen;
  for (int i = 0; i < 3; ++i) {
    records.push_back(engine->read());
    for (const shm::BlockPair& pair : records.back().pairs) seen.push_back(pair.source);
    EXPECT_NE(records.back().head.deadline_ns, 0u) << "split requests need one absolute deadline";
    EXPECT_EQ(records.back().head.deadline_ns, records.front().head.deadline_ns);
  }
  EXPECT_EQ(seen, ids(0, 300));
  // Completions in another order; the second record fails in part, with an index of its own.
  engine->complete(records[2], Code::kOk, 20);
  EXPECT_FALSE(request->poll());
  engine->complete(records[1], Code::kChecksum, 5,
                   {{4, static_cast<uint8_t>(Code::kChecksum), 0, 0}});
  engine->complete(records[0], Code::kOk, 100);
  Result<Completion> completion = request->wait(0);
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kChecksum);
  EXPECT_EQ(completion->bytes, 125u);
  EXPECT_EQ(completion->blocks_ok, 299u);
  ASSERT_EQ(completion->failed.size(), 1u);
  EXPECT_EQ(completion->failed[0].index, 113u + 4);
}

TEST_F(ChannelSubmit, ASplitRequestNamesEveryBlockOfARecordThatFailedWhole) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 200);
  const test::ReadRecord first = engine->read();
  const test::ReadRecord second = engine->read();
  engine->complete(first, Code::kOk, 100);
  engine->complete(second, Code::kTimedOut, 0);
  Result<Completion> completion = request->wait(0);
  EXPECT_EQ(completion->status, Code::kTimedOut);
  EXPECT_EQ(completion->blocks_ok, 113u);
  ASSERT_EQ(completion->failed.size(), 87u);
  EXPECT_EQ(completion->failed.front().index, 113u);
  EXPECT_EQ(completion->failed.back().index, 199u);
  EXPECT_EQ(completion->failed.front().code, Code::kTimedOut);
}

TEST_F(ChannelSubmit, WhatDoesNotFitIsPublishedByWhoeverPollsNext) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 500);  // 5 records, room for 3
  ASSERT_TRUE(request.ok());
  std::vector<test::ReadRecord> records;
  test::ReadRecord record;
  while (engine->read(&record)) records.push_back(record);
  EXPECT_EQ(records.size(), 3u);
  engine->publish_head();
  channel->drive();
  while (engine->read(&record)) records.push_back(record);
  EXPECT_EQ(records.size(), 5u);
  for (const test::ReadRecord& one : records) engine->complete(one, Code::kOk, 1);
  EXPECT_TRUE(request->poll());
  EXPECT_EQ(request->wait(0)->blocks_ok, 500u);
}

TEST_F(ChannelSubmit, OtherRequestsDoNotOvertakeOneThatWaitsForRoom) {
  open(64);
  ASSERT_TRUE(submit(0, 500).ok());
  EXPECT_EQ(submit(600, 1).code(), Code::kRingFull);
}

TEST_F(ChannelSubmit, AFullRingAndMissingCreditsAreDifferentRefusals) {
  open(8);  // 3 slots a record, 16 credits
  std::vector<test::ReadRecord> records;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(0, 1).ok());
  EXPECT_EQ(submit(0, 1).code(), Code::kRingFull);
  for (int i = 0; i < 8; ++i) records.push_back(engine->read());
  EXPECT_EQ(submit(0, 1).code(), Code::kRingFull) << "read, but the head is not published yet";
  engine->publish_head();
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(0, 1).ok());
  for (int i = 0; i < 8; ++i) records.push_back(engine->read());
  engine->publish_head();
  EXPECT_EQ(submit(0, 1).code(), Code::kNoCredit);
  // Completed but not reaped: the refusal reaps, and then there is credit.
  engine->complete(records[5]);
  EXPECT_TRUE(submit(0, 1).ok());
  EXPECT_EQ(submit(0, 1).code(), Code::kNoCredit);
}

TEST_F(ChannelSubmit, TheReapCursorIsStoredBeforeCreditsSoFreedAreSpent) {
  open(8);
  // Each turn ends with all 16 credits spent; by the engine's count there must never be more.
  std::vector<test::ReadRecord> out;
  for (int turn = 0; turn < 50; ++turn) {
    while (submit(0, 2).ok()) {
      out.push_back(engine->read());
      engine->publish_head();
      ASSERT_LE(engine->credits_in_use(), engine->sizes.completion_slots());
    }
    // In an order of its own, some with failed entries.
    const size_t pick = static_cast<size_t>(turn * 7) % out.size();
    const shm::FailedEntry entry{1, static_cast<uint8_t>(Code::kTransport), 0, 0};
    engine->complete(out[pick], Code::kTransport, 1, {entry});
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(pick));
  }
}

TEST_F(ChannelSubmit, TheDoorbellIsRungOnlyWhenTheEngineWantsIt) {
  open(64);
  ASSERT_TRUE(submit(0, 1).ok());
  EXPECT_EQ(engine->take_rings(), 0u);
  engine->words->doorbell_wanted.store(1);
  ASSERT_TRUE(submit(0, 300).ok());
  EXPECT_EQ(engine->take_rings(), 1u) << "once for all records of a request";
}

TEST_F(ChannelSubmit, ADrainingEngineRefusesNewRequests) {
  open(64);
  engine->set_state(shm::ChannelState::kDraining);
  EXPECT_EQ(submit(0, 1).code(), Code::kDraining);
}

TEST_F(ChannelSubmit, WithoutALinkTheEngineIsGone) {
  channel = std::move(detail::ChannelCore::create(table, {}).value());
  EXPECT_EQ(submit(0, 1).code(), Code::kEngineGone);
}

TEST_F(ChannelSubmit, ARangeIsOneRecordWithOneEntry) {
  open(64);
  const RangeOp op{source, 10, region, 20, 30};
  Result<TransferCompleteNotification> request = channel->try_range(op, {});
  ASSERT_TRUE(request.ok());
  const test::ReadRecord record = engine->read();
  EXPECT_EQ(record.head.op, static_cast<uint8_t>(shm::Op::kRange));
  EXPECT_EQ(record.head.pair_count, 1u);
  EXPECT_EQ(record.head.source, 100u);
  EXPECT_EQ(record.head.destination, 102u);
  EXPECT_EQ(record.range.source_offset, 10u);
  EXPECT_EQ(record.range.destination_offset, 20u);
  EXPECT_EQ(record.range.length, 30u);
  engine->complete(record, Code::kOk, 30);
  EXPECT_EQ(request->wait(0)->blocks_ok, 1u);
}

TEST_F(ChannelSubmit, ANotificationIsARecordWithoutBlocks) {
  open(128);  // 33 slots a record: the longest notification fits
  const std::string longest(shm::kMaxNotificationBytes, 'x');
  ASSERT_TRUE(channel->try_notify(peer, longest, {}).ok());
  const test::ReadRecord record = engine->read();
  EXPECT_EQ(record.head.op, static_cast<uint8_t>(shm::Op::kNotify));
  EXPECT_EQ(record.head.destination, 103u);
  EXPECT_EQ(record.head.source, 0u);
  EXPECT_EQ(record.notification, longest);
  EXPECT_EQ(channel->try_notify(peer, longest + "x", {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(channel->try_notify(peer, "", {}).code(), Code::kInvalidArgument);
}

TEST_F(ChannelSubmit, TheNotificationOfASplitRequestGoesLastAndOnlyAfterAllDataArrived) {
  open(64);
  TransferOptions options;
  options.notification = "data is there";
  Result<TransferCompleteNotification> request = submit(0, 200, options);
  ASSERT_TRUE(request.ok());
  const test::ReadRecord first = engine->read();
  const test::ReadRecord second = engine->read();
  EXPECT_TRUE(first.notification.empty());
  EXPECT_TRUE(second.notification.empty());
  engine->complete(second);
  channel->drive();
  test::ReadRecord third;
  EXPECT_FALSE(engine->read(&third)) << "half of the data is still under way";
  engine->complete(first);
  channel->drive();
  third = engine->read();
  EXPECT_EQ(third.notification, options.notification);
  EXPECT_EQ(third.head.pair_count, 0u);
  EXPECT_FALSE(request->poll());
  engine->complete(third, Code::kOk, 0);
  EXPECT_TRUE(request->poll());
  EXPECT_EQ(request->wait(0)->blocks_ok, 200u);
}

TEST_F(ChannelSubmit, TheNotificationOfASplitRequestIsNotSentWhenDataIsMissing) {
  open(64);
  TransferOptions options;
  options.notification = "data is there";
  Result<TransferCompleteNotification> request = submit(0, 200, options);
  const test::ReadRecord first = engine->read();
  const test::ReadRecord second = engine->read();
  engine->complete(second, Code::kTransport, 0);
  engine->complete(first);
  EXPECT_TRUE(request->poll());
  EXPECT_EQ(request->wait(0)->status, Code::kTransport);
  test::ReadRecord third;
  EXPECT_FALSE(engine->read(&third));
}

TEST_F(ChannelSubmit, WaitingPartsEndWhenTheDeadlinePasses) {
  open(8);
  TransferOptions options;
  options.timeout_ns = 20'000'000;
  Result<TransferCompleteNotification> request = submit(0, 100, options);
  ASSERT_TRUE(request.ok());
  // The engine answers what it got, in time, and frees no slot.
  test::ReadRecord record;
  while (engine->read(&record)) engine->complete(record, Code::kOk, 1);
  Result<Completion> completion = request->wait(deadline_in_ms(10'000));
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kTimedOut);
  EXPECT_EQ(completion->blocks_ok + completion->blocks_failed, 100u);
  EXPECT_EQ(completion->blocks_ok, 30u) << "two records of 15 pairs fit";
  EXPECT_TRUE(completion->local_quiet);
}

TEST_F(ChannelSubmit, TheWaitingFormWaitsForRoomAndGivesUpAtTheDeadline) {
  open(8);
  Channel face(channel);
  const std::vector<BlockId> one = {0};
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(0, 1).ok());
  TransferOptions options;
  options.timeout_ns = 5'000'000;
  EXPECT_EQ(face.execute_local_transfer(source, destination, one, one, options).code(),
            Code::kTimedOut);
  for (int i = 0; i < 8; ++i) engine->read();
  engine->publish_head();
  EXPECT_TRUE(face.execute_local_transfer(source, destination, one, one, options).ok());
}

TEST_F(ChannelSubmit, AnotherThreadIsRefusedUntilTheOwnerGivesTheChannelUp) {
  open(64);
  Code code = Code::kOk;
  std::thread([&] {
    code = submit(0, 1).code();
    channel->release();  // not its to give up
  }).join();
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_TRUE(submit(0, 1).ok());
  channel->release();
  std::promise<void> taken;
  std::promise<void> over;
  std::thread other([&] {
    code = submit(0, 1).code();
    taken.set_value();
    over.get_future().wait();
  });
  taken.get_future().wait();
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(submit(0, 1).code(), Code::kInvalidArgument) << "it belongs to the other thread now";
  over.set_value();
  other.join();
  EXPECT_TRUE(submit(0, 1).ok()) << "a thread that ends gives its channels up";
}

}  // namespace
}  // namespace wherry
