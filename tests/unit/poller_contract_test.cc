// The poller's side of the contract: credits, violations, deadlines, cancel, closing,
// notifications.
#include "tests/support/poller_world.h"

namespace wherry::test {
namespace {

using engine::Command;
using engine::Report;

class Contract : public PollerWorld {
 protected:
  std::shared_ptr<engine::SessionShared> session_ = new_session();
  engine::SessionShared* self_ = session_.get();
  uint64_t source_ = layout_in_new_memory(self_, small_geometry(LayoutKind::kFullyContiguous, 64));
  uint64_t destination_ =
      layout_in_new_memory(self_, small_geometry(LayoutKind::kLayerSeparateBlockSecond, 64));

  // Enough pairs, scattered, to keep the memory transport busy for several turns.
  std::vector<shm::BlockPair> long_list(uint32_t count = 64) {
    std::vector<shm::BlockPair> pairs;
    for (uint32_t i = 0; i < count; ++i) pairs.push_back({i, (i * 5) % 64});
    return pairs;
  }

  bool violated(RawChannel* channel) {
    turns();
    for (const Report& report : reports()) {
      if (report.kind == Report::Kind::kViolation && report.channel == &channel->spec) return true;
    }
    return false;
  }

  void command(Command::Kind kind, RawChannel* channel = nullptr, Code code = Code::kAborted) {
    Command c;
    c.kind = kind;
    c.code = code;
    c.channel = channel == nullptr ? nullptr : &channel->spec;
    pollers[0]->send(c);
  }
};

TEST_F(Contract, CompletionsComeOnceEachAndTheInFlightTableEndsEmpty) {
  RawChannel* channel = this->channel(self_);
  std::vector<uint64_t> ids;
  for (uint32_t round = 0; round < 1000; ++round) {
    const uint64_t id = channel->transfer(source_, destination_, {{round % 64, (round * 3) % 64}});
    EXPECT_EQ(completion(channel).head.request_id, id);
  }
  EXPECT_FALSE(channel->reap().has_value());
  for (uint32_t i = 0; i < channel->spec.sizes.completion_slots(); ++i)
    EXPECT_EQ(channel->inflight()[i].load(), 0u);
}

TEST_F(Contract, AClientThatNeverReapsLosesNothingAsLongAsItKeepsItsCredits) {
  RawChannel* channel = this->channel(self_, {16, 0});
  std::vector<uint64_t> ids;
  for (int i = 0; i < 32; ++i) {  // 32 completion slots: all credits there are
    ids.push_back(channel->transfer(source_, destination_, {{1, 1}}));
    turns();
  }
  for (uint64_t id : ids) {
    const auto reaped = channel->reap();
    ASSERT_TRUE(reaped.has_value());
    EXPECT_EQ(reaped->head.request_id, id);
  }
}

TEST_F(Contract, ARecordWithoutCreditIsAViolation) {
  RawChannel* channel = this->channel(self_, {16, 0});
  for (int i = 0; i < 33; ++i) {
    channel->transfer(source_, destination_, {{1, 1}});
    turns();
  }
  EXPECT_TRUE(violated(channel) || channel->spec.stats->violations.get() == 1);
}

TEST_F(Contract, AReapCursorThatCannotBeIsAViolation) {
  for (uint64_t cursor : {uint64_t{1000}, UINT64_MAX, uint64_t{33}}) {
    RawChannel* channel = this->channel(self_, {16, 0});
    for (int i = 0; i < 32; ++i) {
      channel->transfer(source_, destination_, {{1, 1}});
      turns();
    }
    channel->words()->reap_cursor.store(cursor);
    channel->transfer(source_, destination_, {{1, 1}});
    EXPECT_TRUE(violated(channel)) << cursor;
  }
}

TEST_F(Contract, MalformedHeadsEndTheSessionThatSentThemAndNobodyElse) {
  const auto send = [&](auto change) {
    RawChannel* channel = this->channel(self_);
    shm::SubmitHead head{};
    head.op = static_cast<uint8_t>(shm::Op::kTransfer);
    head.source = source_;
    head.destination = destination_;
    head.pair_count = 1;
    head.slot_count = 1;
    change(head);
    channel->writer.publish(&head, 1);
    return violated(channel);
  };
  RawChannel* other = channel(self_);
  EXPECT_FALSE(send([](shm::SubmitHead&) {}));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.op = 0; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.op = 77; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.slot_count = 0; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.slot_count = 65535; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.slot_count = 2; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.pair_count = 9; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.pair_count = 0xffffffff; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.notification_bytes = 1025; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.priority = 2; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.flags = 0x80; }));
  EXPECT_TRUE(send([](shm::SubmitHead& h) { h.reserved = 1; }));
  other->transfer(source_, destination_, {{0, 0}});
  EXPECT_EQ(completion(other).code(), Code::kOk);
}

TEST_F(Contract, ADeadlineThatPassesDropsWhatIsNotPostedAndNamesItsBlocks) {
  RawChannel* channel = this->channel(self_);
  shm::SubmitHead head{};
  head.deadline_ns = now + 1000;
  fill_layout(self_, source_, 5);
  channel->transfer(source_, destination_, long_list(), head);
  pollers[0]->poll_once();
  now += 2000;
  const RawCompletion done = completion(channel);
  EXPECT_EQ(done.code(), Code::kTimedOut);
  EXPECT_EQ(done.head.quiet, shm::kLocalQuiet | shm::kRemoteQuiet);
  ASSERT_GT(done.failed.size(), 0u);
  ASSERT_LT(done.failed.size(), 64u);  // what was moved in time is not failed
  std::vector<bool> failed(64);
  for (const auto& entry : done.failed) {
    EXPECT_EQ(entry.status, static_cast<uint8_t>(Code::kTimedOut));
    EXPECT_FALSE(failed[entry.pair]);
    failed[entry.pair] = true;
  }
  for (uint32_t i = 0; i < 64; ++i) {
    if (!failed[i]) {
      EXPECT_TRUE(holds(self_, destination_, (i * 5) % 64, i, 5));
    }
  }
  // Nothing lands after the completion.
  const uint64_t again =
      layout_in_new_memory(self_, small_geometry(LayoutKind::kFullyContiguous, 1));
  EXPECT_TRUE(guarded(self_, again, 0));
  turns(50);
  for (uint32_t i = 0; i < 64; ++i) {
    if (failed[i]) {
      EXPECT_FALSE(holds(self_, destination_, (i * 5) % 64, i, 5));
    }
  }
}

TEST_F(Contract, ADeadlineInThePastIsTimedOutWithoutAByte) {
  RawChannel* channel = this->channel(self_);
  shm::SubmitHead head{};
  head.deadline_ns = 1;
  channel->transfer(source_, destination_, {{0, 0}}, head);
  EXPECT_EQ(completion(channel).code(), Code::kTimedOut);
  EXPECT_TRUE(guarded(self_, destination_, 0));
}

TEST_F(Contract, DeadlinesAreInTheClientsClock) {
  RawChannel* channel = this->channel(self_);
  channel->spec.clock_offset_ns = 5'000'000;  // the client's clock is ahead
  shm::SubmitHead head{};
  head.deadline_ns = now + 5'000'000 + 1000;
  channel->transfer(source_, destination_, {{0, 0}}, head);
  EXPECT_EQ(completion(channel).code(), Code::kOk);
  head.deadline_ns = now + 4'000'000;
  channel->transfer(source_, destination_, {{0, 0}}, head);
  EXPECT_EQ(completion(channel).code(), Code::kTimedOut);
}

TEST_F(Contract, CancelEndsAQueuedAndAHalfPostedRequestOnceDrained) {
  RawChannel* channel = this->channel(self_);
  const uint64_t first = channel->transfer(source_, destination_, long_list());
  const uint64_t second = channel->transfer(source_, destination_, long_list());
  pollers[0]->poll_once();
  channel->cancel(second);
  channel->cancel(first);
  const RawCompletion a = completion(channel);
  const RawCompletion b = completion(channel);
  EXPECT_EQ(a.head.request_id, second);
  EXPECT_EQ(a.code(), Code::kCancelled);
  EXPECT_EQ(a.head.transport, 0);  // never posted
  EXPECT_EQ(b.head.request_id, first);
  EXPECT_EQ(b.code(), Code::kCancelled);
  EXPECT_GT(b.failed.size(), 0u);
  channel->transfer(source_, destination_, {{0, 0}});
  EXPECT_EQ(completion(channel).code(), Code::kOk);
}

TEST_F(Contract, CancelOfAFinishedOrUnknownRequestDoesNothing) {
  RawChannel* channel = this->channel(self_);
  const uint64_t id = channel->transfer(source_, destination_, {{0, 0}});
  EXPECT_EQ(completion(channel).code(), Code::kOk);
  channel->cancel(id);
  channel->cancel(123456);
  turns();
  EXPECT_EQ(channel->engine_words()->cancel_head.load(), 2u);
  channel->transfer(source_, destination_, {{0, 0}});
  EXPECT_EQ(completion(channel).code(), Code::kOk);
  channel->words()->cancel_tail.store(1000);
  EXPECT_TRUE(violated(channel));
}

TEST_F(Contract, ClosingAbortsWhatIsUnderWayAndThenSaysThatNothingTouchesItAnyMore) {
  RawChannel* channel = this->channel(self_);
  channel->transfer(source_, destination_, long_list());
  pollers[0]->poll_once();
  EXPECT_EQ(view(self_, source_).use_count(), 1u);
  command(Command::Kind::kCloseChannel, channel);
  bool closed = false;
  for (int i = 0; i < 100 && !closed; ++i) {
    turns(1);
    for (const Report& report : reports()) closed |= report.kind == Report::Kind::kChannelClosed;
  }
  EXPECT_TRUE(closed);
  EXPECT_EQ(view(self_, source_).use_count(), 0u);
  const auto last = channel->reap();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->code(), Code::kAborted);
  EXPECT_EQ(channel->engine_words()->state.load(),
            static_cast<uint32_t>(shm::ChannelState::kClosed));
}

TEST_F(Contract, DrainingRefusesTheNewAndFinishesTheOld) {
  RawChannel* channel = this->channel(self_);
  const uint64_t old = channel->transfer(source_, destination_, long_list());
  pollers[0]->poll_once();
  command(Command::Kind::kDrain);
  pollers[0]->poll_once();
  EXPECT_TRUE(reports().empty());  // not idle yet
  const uint64_t late = channel->transfer(source_, destination_, {{0, 0}});
  std::vector<RawCompletion> done = {completion(channel), completion(channel)};
  if (done[0].head.request_id != old) std::swap(done[0], done[1]);
  EXPECT_EQ(done[0].head.request_id, old);
  EXPECT_EQ(done[0].code(), Code::kOk);
  EXPECT_EQ(done[1].head.request_id, late);
  EXPECT_EQ(done[1].code(), Code::kDraining);
  turns();
  const auto said = reports();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].kind, Report::Kind::kIdle);
}

TEST_F(Contract, StopFailsWhatIsQueuedDrainsWhatIsPostedAndEnds) {
  RawChannel* channel = this->channel(self_);
  channel->transfer(source_, destination_, long_list());
  channel->transfer(source_, destination_, long_list());
  pollers[0]->poll_once();
  command(Command::Kind::kStop);
  turns(20);
  EXPECT_EQ(channel->reap()->code(), Code::kAborted);
  EXPECT_EQ(channel->reap()->code(), Code::kAborted);
  std::vector<Report::Kind> kinds;
  for (const Report& report : reports()) kinds.push_back(report.kind);
  EXPECT_EQ(kinds,
            (std::vector<Report::Kind>{Report::Kind::kChannelClosed, Report::Kind::kStopped}));
}

TEST_F(Contract, ANotificationReachesTheOtherClientWithItsSender) {
  auto other = new_session();
  RawChannel* sender = channel(self_, {128, 0});  // room for a record of the longest notification
  RawChannel* receiver = channel(other.get());
  const uint64_t target = client_handle(self_, other);
  const std::string text(1024, 'x');
  for (const std::string& message : {std::string("block 7 is ready"), text}) {
    sender->notify(target, message);
    EXPECT_EQ(completion(sender).code(), Code::kOk);
    const auto got = receiver->read_notification();
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->message, message);
    EXPECT_EQ(got->sender, "raw");
    EXPECT_EQ(got->head.sender_rank, 3u);
  }
  EXPECT_FALSE(receiver->read_notification().has_value());
}

TEST_F(Contract, ABoxThatIsFullRefusesAndLosesNothingAndTakesMoreOnceRead) {
  auto other = new_session();
  RawChannel* sender = channel(self_);
  RawChannel* receiver = channel(other.get(), {64, 8});
  const uint64_t target = client_handle(self_, other);
  uint64_t accepted = 0;
  Code last = Code::kOk;
  for (int i = 0; i < 20; ++i) {
    sender->notify(target, std::to_string(i));
    last = completion(sender).code();
    if (last == Code::kOk) ++accepted;
  }
  EXPECT_EQ(last, Code::kBoxFull);
  EXPECT_EQ(accepted, 4u);  // two slots each
  for (uint64_t i = 0; i < accepted; ++i)
    EXPECT_EQ(receiver->read_notification()->message, std::to_string(i));
  sender->notify(target, "more");
  EXPECT_EQ(completion(sender).code(), Code::kOk);
  EXPECT_EQ(receiver->read_notification()->message, "more");
}

TEST_F(Contract, NotificationsCrossPollersInOrder) {
  add_poller();
  auto other = new_session();
  RawChannel* sender = channel(self_, {256, 0}, 0);
  RawChannel* receiver = channel(other.get(), {64, 256}, 1);
  const uint64_t target = client_handle(self_, other);
  for (int i = 0; i < 20; ++i) sender->notify(target, std::to_string(i));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(completion(sender).code(), Code::kOk);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(receiver->read_notification()->message, std::to_string(i));
}

TEST_F(Contract, ANotificationWithATransferComesAfterItsData) {
  auto other = new_session();
  RawChannel* sender = channel(self_);
  RawChannel* receiver = channel(other.get());
  const uint64_t theirs =
      layout_in_new_memory(other.get(), small_geometry(LayoutKind::kFullyContiguous, 64));
  // What the control thread does for find_layout: the same view in the finder's table.
  auto table = std::make_unique<engine::ClientTable>(*self_->table.load());
  table->entries.push_back(
      {1, engine::kRightRead | engine::kRightWrite, &view(other.get(), theirs)});
  const uint64_t found = engine::make_handle(1, static_cast<uint32_t>(table->entries.size()) - 1);
  self_->table.store(table.get());
  fill_layout(self_, source_, 9);
  sender->transfer(source_, found, long_list(), {}, "pushed");
  for (int i = 0; i < 1000; ++i) {
    turns(1);
    if (auto got = receiver->read_notification()) {
      EXPECT_EQ(got->message, "pushed");
      for (uint32_t b = 0; b < 64; ++b) EXPECT_TRUE(holds(other.get(), theirs, (b * 5) % 64, b, 9));
      EXPECT_EQ(completion(sender).code(), Code::kOk);
      return;
    }
  }
  FAIL() << "no notification";
}

TEST_F(Contract, TwoClientsShareByBytesHoweverManyRequestsOneOfThemPuts) {
  auto other = new_session();
  const uint64_t big_source =
      layout_in_new_memory(self_, small_geometry(LayoutKind::kFullyContiguous, 2000));
  const uint64_t big_destination =
      layout_in_new_memory(self_, small_geometry(LayoutKind::kFullyContiguous, 2000));
  const uint64_t their_source =
      layout_in_new_memory(other.get(), small_geometry(LayoutKind::kFullyContiguous, 8));
  const uint64_t their_destination =
      layout_in_new_memory(other.get(), small_geometry(LayoutKind::kFullyContiguous, 8));
  RawChannel* greedy = channel(self_, {4096, 0});
  RawChannel* modest = channel(other.get());
  std::vector<shm::BlockPair> pairs;
  for (uint32_t i = 0; i < 2000; ++i) pairs.push_back({i, 1999 - i});
  for (int i = 0; i < 4; ++i) greedy->transfer(big_source, big_destination, pairs);
  turns(2);
  modest->transfer(their_source, their_destination, {{0, 0}});
  int waited = 0;
  while (!modest->reap().has_value()) {
    turns(1);
    ASSERT_LT(++waited, 20) << "the small request waits for the big ones";
  }
  EXPECT_FALSE(greedy->reap().has_value());
}

TEST_F(Contract, HighPriorityGoesFirstButLowIsNotStarved) {
  RawChannel* channel = this->channel(self_, {512, 0});
  std::vector<uint64_t> low_ids;
  for (int i = 0; i < 4; ++i)
    low_ids.push_back(channel->transfer(source_, destination_, long_list()));
  shm::SubmitHead high{};
  high.priority = 1;
  std::vector<uint64_t> high_ids;
  for (int i = 0; i < 4; ++i)
    high_ids.push_back(channel->transfer(source_, destination_, long_list(), high));
  std::vector<uint64_t> order;
  for (int i = 0; i < 8; ++i) order.push_back(completion(channel).head.request_id);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(order[static_cast<size_t>(i)], high_ids[static_cast<size_t>(i)]);
}

TEST_F(Contract, AQuietChannelIsStillHeardAmongManyIdleOnes) {
  std::vector<RawChannel*> all;
  for (int i = 0; i < 20; ++i) all.push_back(channel(self_, {16, 0}));
  turns(2500);  // long enough that all of them count as idle
  for (RawChannel* each : all) {
    each->transfer(source_, destination_, {{0, 0}});
    EXPECT_EQ(completion(each).code(), Code::kOk);
  }
}

TEST_F(Contract, AGracePeriodIsOverOnlyAfterTheTurnThatMayHoldTheOldTable) {
  channel(self_);
  const uint64_t ticket = pollers[0]->begin_grace();
  EXPECT_FALSE(pollers[0]->grace_over(ticket));
  turns(2);
  EXPECT_TRUE(pollers[0]->grace_over(ticket));
}

TEST_F(Contract, ASleepingClientIsWokenOncePerSleep) {
  RawChannel* channel = this->channel(self_);
  channel->words()->sleeping.store(
      shm::sleeping_word(channel->engine_words()->wake.load(), shm::kSleepsOnFutex));
  channel->transfer(source_, destination_, {{0, 0}});
  turns();
  EXPECT_EQ(channel->engine_words()->wake.load(), 1u);
  channel->transfer(source_, destination_, {{0, 0}});
  turns();
  EXPECT_EQ(channel->engine_words()->wake.load(), 1u);  // it still sleeps the first sleep
  channel->words()->sleeping.store(shm::sleeping_word(1, shm::kSleepsOnFutex));
  channel->transfer(source_, destination_, {{0, 0}});
  turns();
  EXPECT_EQ(channel->engine_words()->wake.load(), 2u);
  EXPECT_EQ(channel->spec.stats->wakes.get(), 2u);
}

}  // namespace
}  // namespace wherry::test
