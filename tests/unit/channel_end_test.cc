// How a channel of the client library ends requests: waiting, cancel, aggregates, the engine's
// death.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <thread>

#include "clientlib/channel.h"
#include "tests/support/fake_engine_end.h"

namespace wherry {
namespace {

class ChannelEnd : public test::FakeChannel {
 protected:
  static bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
  }
  void complete_once_the_client_sleeps() {
    while (engine->client->sleeping.load() == shm::kAwake && !waited_) std::this_thread::yield();
    engine->complete(engine->read());
    shm::doorbell_fence();
    const uint32_t wake = engine->words->wake.load();
    if (shm::wants_wake(engine->client->sleeping.load(), wake)) {
      engine->words->wake.store(wake + 1);
      shm::futex_wake(engine->words->wake);
    }
  }

  std::atomic<bool> waited_{false};  // the client did, perhaps in vain
};

TEST_F(ChannelEnd, AWaitTimesOutAndTheRequestGoesOn) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  EXPECT_EQ(request->wait(deadline_in_ms(1)).code(), Code::kTimedOut);
  engine->complete(engine->read());
  EXPECT_TRUE(request->wait(deadline_in_ms(1))->ok());
}

TEST_F(ChannelEnd, AWaitSleepsAndIsWokenByACompletion) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  std::thread poller([this] { complete_once_the_client_sleeps(); });
  const Result<Completion> completion = request->wait(deadline_in_ms(30'000));
  EXPECT_TRUE(completion.ok() && completion->ok());
  waited_ = true;
  poller.join();
  EXPECT_EQ(engine->client->sleeping.load(), shm::kAwake);
}

// A client that spins there keeps the poller from running.
TEST_F(ChannelEnd, AWaitOnThePollersCoreSleepsInsteadOfSpinning) {
  detail::CoreOptions options;
  options.spin_ns = 30'000'000'000;  // as long as the wait below
  open(64, options);
  Result<TransferCompleteNotification> request = submit(0, 1);
  std::thread poller([this] { complete_once_the_client_sleeps(); });
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  EXPECT_EQ(sched_setaffinity(0, sizeof(here), &here), 0);
  engine->words->cpu.store(static_cast<uint32_t>(sched_getcpu()));
  const Result<Completion> completion = request->wait(deadline_in_ms(30'000));
  EXPECT_TRUE(completion.ok() && completion->ok());
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  waited_ = true;
  poller.join();
}

// A lost wake-up: what the first arming found is told by nobody when the second one takes it back.
TEST_F(ChannelEnd, ArmingTwiceBeforeASleepKeepsWhatTheFirstOneFound) {
  detail::CoreOptions options;
  options.descriptor = true;
  open(64, options);
  Result<TransferCompleteNotification> first = submit(0, 1);
  Result<TransferCompleteNotification> second = submit(0, 1);
  const int fd = *first->descriptor();
  EXPECT_FALSE(readable(fd));
  engine->complete(engine->read());
  EXPECT_EQ(*first->descriptor(), fd);
  EXPECT_EQ(*second->descriptor(), fd);
  EXPECT_TRUE(readable(fd));
  EXPECT_FALSE(second->poll());  // has looked
  EXPECT_TRUE(first->poll());
  EXPECT_EQ(*second->descriptor(), fd);
  EXPECT_FALSE(readable(fd));
}

TEST_F(ChannelEnd, AfterTheEnginesDeathEachRequestIsCompletedGoneOrNotStarted) {
  open(64);
  std::vector<TransferCompleteNotification> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(*submit(0, 1));
  const test::ReadRecord completed = engine->read();
  const test::ReadRecord completed_and_marked = engine->read();
  const test::ReadRecord marked = engine->read();
  // The order of the engine: mark, hand over, complete, clear. It died in between.
  engine->complete(completed);
  engine->inflight.mark(1, completed_and_marked.id);
  engine->complete(completed_and_marked, Code::kTransport, 0);
  engine->inflight.mark(0, marked.id);
  engine->die();
  EXPECT_EQ(requests[0].wait(0)->status, Code::kOk);
  EXPECT_EQ(requests[1].wait(0)->status, Code::kTransport);
  EXPECT_EQ(requests[2].wait(0)->status, Code::kEngineGone);
  EXPECT_EQ(requests[3].wait(0)->status, Code::kNotStarted);
  EXPECT_EQ(submit(0, 1).code(), Code::kEngineGone);
}

TEST_F(ChannelEnd, ALostConnectionEndsNothingUntilTheEnginesProcessIsGone) {
  const pid_t process = fork();  // stands for the engine
  if (process == 0) {
    pause();
    _exit(0);
  }
  open(64);
  engine->life = std::make_shared<detail::Life>(
      shm::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process, 0))));
  channel->offer(engine->link());
  Result<TransferCompleteNotification> request = submit(0, 1);
  ASSERT_TRUE(request.ok());
  engine->life->lose();
  EXPECT_FALSE(request->poll()) << "it may still be moving bytes";
  EXPECT_EQ(submit(0, 1).code(), Code::kEngineGone);
  kill(process, SIGKILL);
  const Result<Completion> completion = request->wait(deadline_in_ms(30'000));
  waitpid(process, nullptr, 0);
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kNotStarted);
}

TEST_F(ChannelEnd, ASplitRequestIsNotStartedOnlyIfNoRecordWas) {
  open(64);
  Result<TransferCompleteNotification> untouched = submit(0, 200);
  Result<TransferCompleteNotification> touched = submit(200, 100);
  ASSERT_TRUE(touched.ok());
  engine->die();
  EXPECT_EQ(untouched->wait(0)->status, Code::kNotStarted);
  EXPECT_EQ(untouched->wait(0)->blocks_failed, 200u);

  open(64);
  Result<TransferCompleteNotification> half = submit(0, 500);  // two records are not even published
  engine->complete(engine->read(), Code::kOk, 10);
  engine->die();
  const Result<Completion> completion = half->wait(0);
  EXPECT_EQ(completion->status, Code::kEngineGone);
  EXPECT_EQ(completion->blocks_ok, 113u);
  ASSERT_EQ(completion->failed.size(), 387u);
  EXPECT_EQ(completion->failed.front().index, 113u);
  EXPECT_EQ(completion->failed.front().code, Code::kNotStarted);
}

TEST_F(ChannelEnd, ANewLinkIsTakenOnlyAfterTheOldOneIsResolved) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  engine->complete(engine->read());
  engine->die();
  test::FakeEngineEnd next({64, 0});
  channel->offer(next.link());
  Result<TransferCompleteNotification> second = submit(1, 1);
  ASSERT_TRUE(second.ok()) << "resolves the old life, then uses the new one";
  EXPECT_TRUE(request->wait(0)->ok());
  next.complete(next.read());
  EXPECT_TRUE(second->wait(0)->ok());
}

TEST_F(ChannelEnd, AClosedSessionAbortsWhatTheEngineDidNotComplete) {
  open(64);
  Result<TransferCompleteNotification> completed = submit(0, 1);
  Result<TransferCompleteNotification> unread = submit(0, 1);
  engine->complete(engine->read(), Code::kAborted, 0);
  engine->set_state(shm::ChannelState::kClosed);
  EXPECT_EQ(completed->wait(0)->status, Code::kAborted);
  EXPECT_EQ(unread->wait(0)->status, Code::kAborted);
  EXPECT_TRUE(unread->wait(0)->local_quiet);
}

TEST_F(ChannelEnd, AnImpossibleCompletionEndsTheChannelInsteadOfMisleadingTheCaller) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  test::ReadRecord record = engine->read();
  record.id = 999;
  engine->complete(record);
  const Result<Completion> completion = request->wait(deadline_in_ms(10'000));
  EXPECT_EQ(completion->status, Code::kInternal);
  EXPECT_FALSE(completion->local_quiet);
}

TEST_F(ChannelEnd, CancelGoesToTheEngineForPublishedRecordsAndEndsTheOthers) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 500);
  ASSERT_TRUE(request->cancel().ok());
  std::vector<test::ReadRecord> records;
  test::ReadRecord record;
  while (engine->read(&record)) records.push_back(record);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(engine->client->cancel_tail.load(), 3u);
  std::vector<uint64_t> cancelled;
  for (size_t i = 0; i < 3; ++i) cancelled.push_back(engine->client->cancel_ids[i].load());
  std::sort(cancelled.begin(), cancelled.end());
  EXPECT_EQ(cancelled, (std::vector<uint64_t>{records[0].id, records[1].id, records[2].id}));
  EXPECT_FALSE(request->poll()) << "records are still under way";
  engine->complete(records[0], Code::kOk, 10);
  engine->complete(records[1], Code::kCancelled, 0);
  engine->complete(records[2], Code::kCancelled, 0);
  const Result<Completion> completion = request->wait(0);
  EXPECT_EQ(completion->status, Code::kCancelled);
  EXPECT_EQ(completion->blocks_ok, 113u);
  EXPECT_EQ(completion->blocks_failed, 387u);
  EXPECT_TRUE(request->cancel().ok()) << "of a complete request: nothing happens";
}

TEST_F(ChannelEnd, CancelsThatDoNotFitTheirRingAreSentLater) {
  open(256);
  std::vector<TransferCompleteNotification> requests;
  for (uint32_t i = 0; i < shm::kCancelSlots + 10; ++i) requests.push_back(*submit(0, 1));
  for (auto& request : requests) ASSERT_TRUE(request.cancel().ok());
  EXPECT_EQ(engine->client->cancel_tail.load(), shm::kCancelSlots);
  engine->words->cancel_head.store(30);
  channel->drive();
  EXPECT_EQ(engine->client->cancel_tail.load(), shm::kCancelSlots + 10u);
}

TEST_F(ChannelEnd, DroppingEveryNotificationDoesNotDisturbTheTransfer) {
  open(64);
  { Result<TransferCompleteNotification> dropped = submit(0, 1); }
  Result<TransferCompleteNotification> kept = submit(0, 1);
  engine->complete(engine->read());
  engine->complete(engine->read());
  EXPECT_EQ(channel->drive(), 2u);
  EXPECT_TRUE(kept->poll());
}

TEST_F(ChannelEnd, ANotificationOutlivesTheCallersHandleOfTheChannel) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  channel.reset();
  engine->complete(engine->read());
  EXPECT_TRUE(request->wait(deadline_in_ms(10'000))->ok());
}

TEST_F(ChannelEnd, AnotherThreadMayWatchButNotMoveARequest) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  engine->complete(engine->read());
  Code watched = Code::kOk;
  std::thread([&] { watched = request->wait(deadline_in_ms(5)).code(); }).join();
  EXPECT_EQ(watched, Code::kTimedOut) << "the owner has not polled";
  channel->drive();
  std::thread([&] { watched = request->wait(0)->status; }).join();
  EXPECT_EQ(watched, Code::kOk);
}

TEST_F(ChannelEnd, AnAggregateOfNothingIsComplete) {
  const TransferCompleteNotification none = *TransferCompleteNotification::aggregate({});
  EXPECT_FALSE(none.could_yield());
  EXPECT_TRUE(none.completion()->ok());
}

TEST_F(ChannelEnd, AnAggregateWaitsForAllAlsoAfterAFailureAndHasTheWorstStatus) {
  open(64);
  std::vector<TransferCompleteNotification> members;
  for (int i = 0; i < 3; ++i) members.push_back(*submit(0, 2));
  TransferCompleteNotification all = *TransferCompleteNotification::aggregate(members);
  const test::ReadRecord first = engine->read();
  const test::ReadRecord second = engine->read();
  const test::ReadRecord third = engine->read();
  engine->complete(first, Code::kOutOfRange, 0,
                   {{1, static_cast<uint8_t>(Code::kOutOfRange), 0, 0}});
  engine->complete(third, Code::kTransport, 9, {{0, static_cast<uint8_t>(Code::kTransport), 0, 5}},
                   shm::kLocalQuiet);
  EXPECT_FALSE(all.poll());
  EXPECT_EQ(all.wait(deadline_in_ms(1)).code(), Code::kTimedOut);
  engine->complete(second, Code::kOk, 20);
  const Result<Completion> completion = all.wait(deadline_in_ms(10'000));
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion->status, Code::kTransport);
  EXPECT_EQ(completion->bytes, 29u);
  EXPECT_EQ(completion->blocks_ok, 3u);
  EXPECT_EQ(completion->blocks_failed, 3u);
  EXPECT_TRUE(completion->local_quiet);
  EXPECT_FALSE(completion->remote_quiet);
  ASSERT_EQ(completion->failed.size(), 2u);
  EXPECT_EQ(completion->failed[0].member, 0u);
  EXPECT_EQ(completion->failed[0].index, 1u);
  EXPECT_EQ(completion->failed[1].member, 2u);
}

TEST_F(ChannelEnd, AnAggregateIsNotStartedOnlyIfEveryMemberWasNot) {
  open(64);
  TransferCompleteNotification a = *submit(0, 1);
  TransferCompleteNotification b = *submit(0, 1);
  TransferCompleteNotification c = *submit(0, 1);
  engine->complete(engine->read());
  engine->die();
  EXPECT_EQ(TransferCompleteNotification::aggregate({b, c})->wait(0)->status, Code::kNotStarted);
  EXPECT_EQ(TransferCompleteNotification::aggregate({a, b})->wait(0)->status, Code::kEngineGone);
}

TEST_F(ChannelEnd, ADescriptorBecomesReadableAndStaysTheSameOverALife) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  shm::UniqueFd engine_side(pair[1]);
  engine = std::make_unique<test::FakeEngineEnd>(shm::ChannelSizes{64, 0});
  detail::CoreOptions options;
  options.descriptor = true;
  channel = std::move(detail::ChannelCore::create(table, options).value());
  channel->offer(engine->link(shm::UniqueFd(pair[0])));

  Result<TransferCompleteNotification> request = submit(0, 1);
  const Result<int> fd = request->descriptor();
  ASSERT_TRUE(fd.ok());
  EXPECT_FALSE(readable(*fd));
  const uint32_t sleeping = engine->client->sleeping.load();
  EXPECT_TRUE(shm::wants_wake(sleeping, engine->words->wake.load()));
  EXPECT_NE(sleeping & shm::kSleepsOnDescriptor, 0u);
  engine->complete(engine->read());
  const char byte = 0;
  ASSERT_EQ(send(engine_side.get(), &byte, 1, 0), 1);
  EXPECT_TRUE(readable(*fd));
  EXPECT_TRUE(request->poll());
  EXPECT_FALSE(readable(*fd)) << "quiet again after the poll";

  // Something is there before it is armed: readable at once, without the engine.
  Result<TransferCompleteNotification> second = submit(0, 1);
  engine->complete(engine->read());
  EXPECT_EQ(*second->descriptor(), *fd);
  EXPECT_TRUE(readable(*fd));
  EXPECT_TRUE(second->poll());

  // The engine's end closes: the loop wakes up and finds out.
  Result<TransferCompleteNotification> third = submit(0, 1);
  EXPECT_EQ(*third->descriptor(), *fd);
  EXPECT_FALSE(readable(*fd));
  engine_side.reset();
  EXPECT_TRUE(readable(*fd));
  engine->die();
  EXPECT_TRUE(third->poll());
  EXPECT_EQ(third->wait(0)->status, Code::kNotStarted);
}

TEST_F(ChannelEnd, AChannelWithoutADescriptorSaysSo) {
  open(64);
  EXPECT_EQ(submit(0, 1)->descriptor().code(), Code::kUnsupported);
}

TEST_F(ChannelEnd, NotificationsArriveInOrderAndSurviveTheEnginesDeath) {
  open(64, {}, 64);
  engine->deliver("prefill", 3, "first", 1);
  engine->deliver("prefill", 3, std::string(500, 'm'), 2);
  std::vector<Notification> list = *channel->take_notifications();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].instance, "prefill");
  EXPECT_EQ(list[0].rank, 3u);
  EXPECT_EQ(list[0].bytes, "first");
  EXPECT_EQ(list[1].bytes, std::string(500, 'm'));
  EXPECT_EQ(list[1].sequence, 2u);
  EXPECT_EQ(engine->client->notification_cursor.load(), engine->notifications.position());
  engine->deliver("prefill", 3, "last words", 3);
  engine->die();
  channel->drive();
  list = *channel->take_notifications();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].bytes, "last words");
}

TEST_F(ChannelEnd, AForkedChildIsRefusedAndDoesNotTouchTheRing) {
  open(64);
  Result<TransferCompleteNotification> request = submit(0, 1);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = submit(0, 1).code() == Code::kAborted &&
                         request->wait(kForever).code() == Code::kAborted &&
                         request->cancel().code() == Code::kAborted &&
                         channel->take_notifications().code() == Code::kAborted;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  engine->read();
  test::ReadRecord second;
  EXPECT_FALSE(engine->read(&second));
  EXPECT_TRUE(submit(0, 1).ok()) << "the parent goes on";
}

}  // namespace
}  // namespace wherry
