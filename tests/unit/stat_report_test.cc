#include "tools/stat_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "shm/file_descriptor.h"
#include "shm/stats_writer.h"
#include "tests/temporary_directory.h"

namespace wherry::tools {
namespace {

constexpr uint64_t kStart = 1'700'000'000'000'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

class StatReports : public ::testing::Test {
 protected:
  StatReports() {
    shm::StatsOptions options;
    options.engine_name = "test";
    options.incarnation = 0x1234;
    options.pollers = 2;
    options.wall_clock = [this] { return now_; };
    Result<shm::StatsWriter> writer = shm::StatsWriter::create(directory_ / "stats", options);
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    if (writer.ok()) writer_ = std::move(*writer);
    writer_.set_state(shm::EngineState::kRunning, "");
    writer_.set_transport(1, "memory", 3, true, "", "copies");
    writer_.set_transport(2, "verbs", 2, false, "no device", "");
    poller_ = writer_.add_poller(0, 4, 1);
  }

  StatReport report(uint64_t monotonic_ns = 0) {
    Result<shm::StatsReader> reader = shm::StatsReader::open(directory_ / "stats");
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return take_report(*reader, {Life::kLive, ""}, now_, monotonic_ns);
  }
  nlohmann::json json() { return nlohmann::json::parse(json_report(report(), false)); }
  LifeReport life(uint64_t now_wall_ns) {
    Result<shm::StatsReader> reader = shm::StatsReader::open(directory_ / "stats");
    return engine_life(*reader, directory_ / "stats", now_wall_ns);
  }
  // An OFD lock as an engine holds it; also this process's own other descriptors meet it.
  shm::UniqueFd take_lock(const std::string& text) {
    shm::UniqueFd fd(open((directory_ / "engine.lock").c_str(), O_RDWR | O_CREAT, 0600));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    EXPECT_EQ(fcntl(fd.get(), F_OFD_SETLK, &lock), 0);
    EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return fd;
  }
  std::string own_lock_text() { return std::to_string(getpid()) + " 12345\n"; }

  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  tests::TemporaryDirectory directory_;
  uint64_t now_ = kStart;
  shm::StatsWriter writer_;
  shm::PollerStats* poller_ = nullptr;
};

TEST_F(StatReports, TheHeaderComesFirstWithNameLifeStateAndAges) {
  now_ += 90 * kSecond;
  const std::string text = text_report(report());
  EXPECT_EQ(text.rfind("engine test  Wherry ", 0), 0u) << text;
  EXPECT_TRUE(has(
      text, "life   live, pid " + std::to_string(getpid()) + ", incarnation 0000000000001234\n"))
      << text;
  EXPECT_TRUE(has(text, "state  running, started 2023-11-14T22:13:20.000Z, 1.5 min ago\n")) << text;
  EXPECT_TRUE(has(text, "beat   1, 1.5 min ago\n")) << text;
}

TEST_F(StatReports, TheStatesReasonStandsBesideIt) {
  writer_.set_state(shm::EngineState::kFailed, "no room");
  EXPECT_TRUE(has(text_report(report()), "state  failed (no room)"));
  EXPECT_EQ(json()["state"], "failed");
  EXPECT_EQ(json()["reason"], "no room");
}

TEST_F(StatReports, APollersBusyRatioIsBusyOfBusyAndIdleTime) {
  poller_->busy_ns.set(250);
  poller_->idle_ns.set(750);
  poller_->longest_turn_ns.set(1'250'000);
  EXPECT_DOUBLE_EQ(busy_ratio(report().pollers[0]), 0.25);
  EXPECT_TRUE(has(text_report(report()), "25.0 %"));
  EXPECT_TRUE(has(text_report(report()), "1.25 ms"));
  EXPECT_EQ(json()["pollers"][0]["busy_ratio"], 0.25);
  EXPECT_EQ(json()["pollers"][0]["cpu"], 4);
}

TEST_F(StatReports, APollerThatDidNothingYetHasRatioZero) {
  EXPECT_EQ(busy_ratio(report().pollers[0]), 0);
}

TEST_F(StatReports, BetweenTwoLooksRatioAndRatesAreOfTheTimeInBetween) {
  poller_->busy_ns.set(1000);
  poller_->completed[1][0].add(10);
  poller_->bytes[1].add(4096);
  const StatReport before = report(0);
  poller_->busy_ns.add(100);
  poller_->idle_ns.add(300);
  poller_->completed[1][0].add(20);
  poller_->bytes[1].add(2 << 20);
  const StatReport after = report(2 * kSecond);
  const std::string text = text_report(after, &before);
  EXPECT_TRUE(has(text, "25.0 %")) << text;
  EXPECT_TRUE(has(text, "1.00 MiB/s, 10 requests/s")) << text;
}

TEST_F(StatReports, RatesAreNotTakenAcrossTwoLivesOfAnEngine) {
  StatReport before = report(0);
  before.identity.incarnation = 99;
  poller_->bytes[1].add(1 << 20);
  EXPECT_FALSE(has(text_report(report(kSecond), &before), "requests/s"));
}

TEST_F(StatReports, RequestsAreShownByTransportAndStatusAndOnlyThoseThatThereWere) {
  shm::PollerStats* second = writer_.add_poller(1, -1, 0);
  const auto code = static_cast<size_t>(Code::kCancelled);
  poller_->completed[1][0].add(40);
  second->completed[1][0].add(2);
  second->completed[1][code].add(3);
  second->bytes[1].add(1536);
  const std::string text = text_report(report());
  EXPECT_TRUE(has(text, "OK 42, CANCELLED 3\n")) << text;
  EXPECT_TRUE(has(text, "1.50 KiB")) << text;
  EXPECT_FALSE(has(text, "TIMED_OUT")) << text;
  EXPECT_EQ(json()["traffic"].dump(),
            R"({"memory":{"bytes":1536,"requests":{"CANCELLED":3,"OK":42}}})");
}

TEST_F(StatReports, LatencyIsThatOfAllPollersTogether) {
  shm::PollerStats* second = writer_.add_poller(1, -1, 0);
  for (int i = 0; i < 99; ++i) poller_->latency_ns.record(1000);
  second->latency_ns.record(5'000'000);
  const auto latency = json()["latency_ns"];
  EXPECT_EQ(latency["count"], 100);
  EXPECT_LT(latency["p50"], 1200);
  EXPECT_EQ(latency["p999"], 5'000'000);
  EXPECT_EQ(latency["max"], 5'000'000);
  EXPECT_TRUE(has(text_report(report()), "seen to completed"));
}

TEST_F(StatReports, ClientsAreShownWithTheirFlags) {
  shm::ClientRow* row = writer_.add_client({"prefill", 7, 8, 2, 99, 1000});
  row->flags.store(shm::kClientStalled);
  row->registered_bytes.set(4ull << 30);
  writer_.channel(row, 0)->deadline_misses.add(3);
  const std::string text = text_report(report());
  EXPECT_TRUE(has(text, "prefill/2")) << text;
  EXPECT_TRUE(has(text, "4.00 GiB")) << text;
  EXPECT_TRUE(has(text, "stalled late=3\n")) << text;
  const auto client = json()["clients"][0];
  EXPECT_EQ(client["instance"], "prefill");
  EXPECT_EQ(client["stalled"], true);
  EXPECT_EQ(client["draining"], false);
  EXPECT_EQ(client["session"], "0000000000000007");
  EXPECT_EQ(client["deadline_misses"], 3);
}

TEST_F(StatReports, TransportsAreShownWithWhyTheyAreNotAvailable) {
  const std::string text = text_report(report());
  EXPECT_TRUE(has(text, "copies\n")) << text;
  EXPECT_TRUE(has(text, "no  no device\n")) << text;
  EXPECT_EQ(json()["transports"][1]["reason"], "no device");
}

TEST_F(StatReports, CountersOfZeroAreOnlyInTheJson) {
  writer_.add_counter("attaches_total")->add(4);
  writer_.add_counter("refusals_total", "key=clients");
  const std::string text = text_report(report());
  EXPECT_TRUE(has(text, "attaches_total 4\n")) << text;
  EXPECT_FALSE(has(text, "refusals_total")) << text;
  EXPECT_EQ(json()["counters"].size(), 3u);
}

TEST_F(StatReports, ErrorsAreShownWithCountAndTimes) {
  writer_.record_error(shm::ErrorId::kClientLost, "prefill/0", "killed");
  now_ += 5 * kSecond;
  writer_.record_error(shm::ErrorId::kClientLost, "prefill/0", "killed again");
  now_ += 5 * kSecond;
  EXPECT_TRUE(has(text_report(report()),
                  "client_lost prefill/0: killed again\n    2 times, last 5 s ago\n"));
  const std::string errors = text_errors(report());
  EXPECT_EQ(errors.rfind("engine test", 0), 0u);
  EXPECT_TRUE(has(errors, "first at 2023-11-14T22:13:20.000Z, last at 2023-11-14T22:13:25.000Z"));
  EXPECT_FALSE(has(errors, "pollers"));
  EXPECT_EQ(json()["errors"][0]["count"], 2);
}

TEST_F(StatReports, WhatAFileHoldsCannotReachTheTerminalOrBreakTheJson) {
  writer_.set_state(shm::EngineState::kFailed, "\x1b]0;evil\x07\xff\n");
  writer_.record_error(shm::ErrorId::kInternal, "\xff\xfe", "\x1b[2J");
  const std::string text = text_report(report());
  EXPECT_TRUE(has(text, "(?]0;evil" + std::string(3, '?') + ")")) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(json()["errors"][0]["text"], "\x1b[2J");
}

TEST_F(StatReports, JsonOnOneLineIsOneLine) {
  const std::string line = json_report(report(), true);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(json_report(report(), true), line);
}

TEST_F(StatReports, AFailureIsAnObjectThatNamesTheCode) {
  const auto failure =
      nlohmann::json::parse(json_failure(Status(Code::kUnreachable, "no \"x\""), true));
  EXPECT_EQ(failure["life"], "not_found");
  EXPECT_EQ(failure["error"]["code"], "UNREACHABLE");
  EXPECT_EQ(failure["error"]["message"], "no \"x\"");
}

TEST_F(StatReports, AFileWithoutALockBesideItIsACopyUnlessItsEngineStopped) {
  EXPECT_EQ(life(now_).life, Life::kCopy);
  writer_.set_state(shm::EngineState::kStopped, "");
  EXPECT_EQ(life(now_).life, Life::kStopped);
}

TEST_F(StatReports, AHeldLockMeansLifeAndAFreeOneDeath) {
  {
    const shm::UniqueFd lock = take_lock(own_lock_text());
    EXPECT_EQ(life(now_).life, Life::kLive);
    EXPECT_EQ(life(now_).life, Life::kLive);  // asking took nothing
  }
  EXPECT_EQ(life(now_).life, Life::kDead);
  writer_.set_state(shm::EngineState::kStopped, "");
  EXPECT_EQ(life(now_).life, Life::kStopped);
}

TEST_F(StatReports, AHeldLockWithoutABeatForLongIsStale) {
  const shm::UniqueFd lock = take_lock(own_lock_text());
  EXPECT_EQ(life(now_ + kStaleAfterNs).life, Life::kLive);
  EXPECT_EQ(life(now_ + kStaleAfterNs + 1).life, Life::kStale);
}

TEST_F(StatReports, ALockOfAnotherProcessThanTheFilesIsStale) {
  const shm::UniqueFd lock = take_lock(std::to_string(getpid() + 1) + " 12345\n");
  EXPECT_EQ(life(now_).life, Life::kStale);
}

TEST_F(StatReports, ALockThatSaysNothingIsBelieved) {
  const shm::UniqueFd lock = take_lock("");
  EXPECT_EQ(life(now_).life, Life::kLive);
}

}  // namespace
}  // namespace wherry::tools
