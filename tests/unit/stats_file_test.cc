#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "shm/stats_reader.h"
#include "shm/stats_writer.h"
#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

class StatsFile : public ::testing::Test {
 protected:
  StatsFile() {
    options_.engine_name = "test";
    options_.incarnation = 0xabcdef;
    options_.pollers = 2;
    options_.clients = 3;
    options_.channels_per_client = 2;
    options_.counters = 4;
    options_.peers = 1;
    options_.devices = 1;
    options_.monotonic_clock = [this] { return monotonic_ns_; };
    options_.wall_clock = [this] { return wall_ns_; };
  }

  StatsWriter create() {
    Result<StatsWriter> writer = StatsWriter::create(path_, options_);
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    return writer.ok() ? std::move(*writer) : StatsWriter();
  }
  StatsReader open() {
    Result<StatsReader> reader = StatsReader::open(path_);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return reader.ok() ? std::move(*reader) : StatsReader();
  }
  std::vector<std::string> files() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  tests::TemporaryDirectory directory_;
  std::string path_ = directory_ / "stats";
  uint64_t monotonic_ns_ = 0;
  uint64_t wall_ns_ = 1'700'000'000'000'000'000;
  StatsOptions options_;
};

TEST_F(StatsFile, ANewFileSaysWhoTheEngineIsAndLeavesNoOtherFileBeside) {
  const StatsWriter writer = create();
  const StatsReader reader = open();
  EXPECT_EQ(reader.identity().engine_name, "test");
  EXPECT_EQ(reader.identity().incarnation, 0xabcdefu);
  EXPECT_EQ(reader.identity().pid, static_cast<uint64_t>(getpid()));
  EXPECT_EQ(reader.identity().major, kStatsMajor);
  EXPECT_EQ(reader.identity().start_wall_ns, wall_ns_);
  EXPECT_NE(reader.identity().build.find(WHERRY_VERSION), std::string::npos);
  EXPECT_EQ(reader.state().state, EngineState::kStarting);
  EXPECT_TRUE(reader.pollers().empty());
  EXPECT_TRUE(reader.clients().empty());
  EXPECT_TRUE(reader.transports().empty());
  EXPECT_TRUE(reader.peers().empty());
  EXPECT_TRUE(reader.devices().empty());
  EXPECT_TRUE(reader.errors().empty());
  EXPECT_EQ(files(), std::vector<std::string>{"stats"});
  EXPECT_NE(writer.address(), nullptr);
  EXPECT_EQ(writer.bytes(), std::filesystem::file_size(path_));
}

TEST_F(StatsFile, StateReasonAndBeatAreSeenByAReaderThatIsThereAlready) {
  StatsWriter writer = create();
  const StatsReader reader = open();
  const uint64_t beats = reader.state().beats;
  writer.set_state(EngineState::kFailed, "no room for \"x\"");
  wall_ns_ += 5;
  writer.beat();
  const StatsState state = reader.state();
  EXPECT_EQ(state.state, EngineState::kFailed);
  EXPECT_EQ(state.reason, "no room for \"x\"");
  EXPECT_EQ(state.beats, beats + 1);
  EXPECT_EQ(state.beat_wall_ns, wall_ns_);
  writer.set_state(EngineState::kStopped, "");
  EXPECT_EQ(reader.state().reason, "");
}

TEST_F(StatsFile, APollersRowIsSeenWhenItIsInUse) {
  StatsWriter writer = create();
  PollerStats* stats = writer.add_poller(1, -1, 2);
  stats->records.add(3);
  stats->records.add(4);
  stats->completed[1][0].add(5);
  stats->latency_ns.record(900);
  const StatsReader reader = open();
  ASSERT_EQ(reader.pollers().size(), 1u);
  const PollerStats& seen = *reader.pollers()[0];
  EXPECT_EQ(seen.index.load(), 1u);
  EXPECT_EQ(seen.cpu.load(), -1);
  EXPECT_EQ(idle_strategy_text(seen.idle_strategy.load()), "sleep");
  EXPECT_EQ(seen.records.get(), 7u);
  EXPECT_EQ(seen.completed[1][0].get(), 5u);
  EXPECT_EQ(seen.latency_ns.copy().count, 1u);
}

TEST_F(StatsFile, AClientsRowHoldsTheSumOfItsChannels) {
  StatsWriter writer = create();
  writer.add_client({"other", 1, 2, 0, 3, 4});
  ClientRow* row = writer.add_client({"prefill", 11, 22, 5, 33, 44});
  row->channels.store(2);
  row->registered_bytes.set(4096);
  writer.channel(row, 0)->requests.add(1);
  writer.channel(row, 1)->requests.add(2);
  writer.channel(row, 1)->cancels.add(9);
  const std::vector<ClientRecord> clients = open().clients();
  ASSERT_EQ(clients.size(), 2u);
  EXPECT_EQ(clients[0].requests, 0u);
  EXPECT_EQ(clients[1].instance, "prefill");
  EXPECT_EQ(clients[1].session, 11u);
  EXPECT_EQ(clients[1].incarnation, 22u);
  EXPECT_EQ(clients[1].rank, 5u);
  EXPECT_EQ(clients[1].pid, 33u);
  EXPECT_EQ(clients[1].uid, 44u);
  EXPECT_EQ(clients[1].attached_wall_ns, wall_ns_);
  EXPECT_EQ(clients[1].channels, 2u);
  EXPECT_EQ(clients[1].registered_bytes, 4096u);
  EXPECT_EQ(clients[1].requests, 3u);
  EXPECT_EQ(clients[1].cancels, 9u);
  EXPECT_FALSE(clients[1].torn);
}

TEST_F(StatsFile, AnInstanceNameOfFullLengthIsReadWhole) {
  StatsWriter writer = create();
  const std::string name(64, 'n');
  writer.add_client({name, 1, 2, 3, 4, 5});
  EXPECT_EQ(open().clients()[0].instance, name);
}

TEST_F(StatsFile, AClientBeyondTheTableHasNoRow) {
  StatsWriter writer = create();
  for (const char* name : {"a", "b", "c"})
    EXPECT_NE(writer.add_client({name, 1, 1, 0, 1, 1}), nullptr);
  EXPECT_EQ(writer.add_client({"d", 1, 1, 0, 1, 1}), nullptr);
}

TEST_F(StatsFile, ARemovedClientIsNotSeenAndItsRowStartsAgainAtZero) {
  StatsWriter writer = create();
  ClientRow* row = writer.add_client({"first", 1, 1, 0, 1, 1});
  row->flags.store(kClientStalled);
  row->regions.set(7);
  writer.channel(row, 1)->bytes.add(100);
  writer.remove_client(row);
  EXPECT_TRUE(open().clients().empty());
  EXPECT_EQ(writer.add_client({"second", 2, 2, 0, 2, 2}), row);
  const std::vector<ClientRecord> clients = open().clients();
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].instance, "second");
  EXPECT_EQ(clients[0].flags, 0u);
  EXPECT_EQ(clients[0].regions, 0u);
  EXPECT_EQ(clients[0].bytes, 0u);
}

TEST_F(StatsFile, AClientHasNoMoreChannelsThanRowsWereSetAside) {
  StatsWriter writer = create();
  const ClientRow* row = writer.add_client({"a", 1, 1, 0, 1, 1});
  EXPECT_NE(writer.channel(row, 1), nullptr);
  EXPECT_EQ(writer.channel(row, 2), nullptr);
}

TEST_F(StatsFile, ACounterIsKnownByNameAndLabels) {
  StatsWriter writer = create();
  Counter* clients = writer.add_counter("refusals_total", "key=clients");
  Counter* regions = writer.add_counter("refusals_total", "key=regions");
  EXPECT_NE(clients, regions);
  EXPECT_EQ(writer.add_counter("refusals_total", "key=clients"), clients);
  clients->add(2);
  const std::vector<CounterRecord> counters = open().counters();
  ASSERT_EQ(counters.size(), 3u);  // errors_unrecordable_total is there from the start
  EXPECT_EQ(counters[0].name, "errors_unrecordable_total");
  EXPECT_EQ(counters[1].name, "refusals_total");
  EXPECT_EQ(counters[1].labels, "key=clients");
  EXPECT_EQ(counters[1].value, 2u);
  EXPECT_EQ(counters[2].labels, "key=regions");
}

TEST_F(StatsFile, ARemovedCountersRowRestsForASecondBeforeAnotherGetsIt) {
  StatsWriter writer = create();
  Counter* const gone = writer.add_counter("a");
  Counter* const b = writer.add_counter("b");
  Counter* const c = writer.add_counter("c");
  gone->add(5);
  writer.remove_counter(gone);
  EXPECT_EQ(open().counters().size(), 3u);
  monotonic_ns_ += 999'999'999;
  Counter* const unseen = writer.add_counter("d");
  EXPECT_TRUE(unseen != gone && unseen != b && unseen != c);
  monotonic_ns_ += 1;
  EXPECT_EQ(writer.add_counter("d"), gone);
  EXPECT_EQ(gone->get(), 0u);
  EXPECT_EQ(open().counters()[1].name, "d");
}

TEST_F(StatsFile, WithTheTableFullACounterWorksButIsNotSeen) {
  StatsWriter writer = create();
  for (const char* name : {"a", "b", "c"}) writer.add_counter(name);
  Counter* unseen = writer.add_counter("one too many");
  ASSERT_NE(unseen, nullptr);
  unseen->add(1);
  EXPECT_EQ(open().counters().size(), 4u);
}

TEST_F(StatsFile, TransportsAreSeenWithReasonAndLevel) {
  StatsWriter writer = create();
  writer.set_transport(1, "memory", 3, true, "", "copies");
  writer.set_transport(4, "null", 1, false, "not allowed", "");
  const std::vector<TransportRecord> transports = open().transports();
  ASSERT_EQ(transports.size(), 2u);
  EXPECT_EQ(transports[0].id, 1u);
  EXPECT_EQ(transports[0].name, "memory");
  EXPECT_TRUE(transports[0].available);
  EXPECT_EQ(transports[0].info, "copies");
  EXPECT_EQ(transports[1].id, 4u);
  EXPECT_FALSE(transports[1].available);
  EXPECT_EQ(transports[1].reason, "not allowed");
}

TEST_F(StatsFile, ManySubjectsOfOneErrorShareAnEntryAndLeaveRoomForOtherErrors) {
  StatsWriter writer = create();
  const uint32_t many = kErrorLogBytes / sizeof(ErrorEntry) + 3;
  for (uint32_t i = 0; i < many; ++i) {
    writer.record_error(ErrorId::kClientLost, "client " + std::to_string(i), "gone");
  }
  writer.record_error(ErrorId::kStatsLost, "stats", "torn");
  const StatsReader reader = open();
  EXPECT_EQ(reader.errors().size(), kErrorSubjects + 2u);
  uint64_t observed = 0;
  for (const ErrorRecord& error : reader.errors()) observed += error.count;
  EXPECT_EQ(observed, many + 1u);
  EXPECT_EQ(reader.counters()[0].value, 0u);  // none was lost
}

TEST_F(StatsFile, AReaderOfTheFormerFileKeepsItWhenANewEngineStarts) {
  StatsWriter first = create();
  first.set_state(EngineState::kRunning, "first");
  const StatsReader reader = open();
  options_.incarnation = 2;
  const StatsWriter second = create();
  EXPECT_EQ(reader.identity().incarnation, 0xabcdefu);
  EXPECT_EQ(reader.state().reason, "first");
  EXPECT_EQ(open().identity().incarnation, 2u);
}

TEST_F(StatsFile, TheFormerEnginesErrorsAreExportedAndNamedByItsStart) {
  {
    StatsWriter first = create();
    EXPECT_TRUE(first.exported_errors().empty());
    first.record_error(ErrorId::kClientLost, "prefill/0", "killed");
  }
  wall_ns_ += 1'000'000'000;
  const StatsWriter second = create();
  EXPECT_EQ(second.exported_errors(), directory_ / "errors-2023-11-14T22-13-20.000Z.log");
  EXPECT_EQ(second.export_problem(), "");
  EXPECT_NE(tests::read_file(second.exported_errors()).find("client_lost prefill/0 count=1"),
            std::string::npos);
  EXPECT_TRUE(open().errors().empty());
}

TEST_F(StatsFile, AFormerEngineWithoutErrorsLeavesNoLog) {
  create();
  EXPECT_TRUE(create().exported_errors().empty());
  EXPECT_EQ(files(), std::vector<std::string>{"stats"});
}

TEST_F(StatsFile, OnlyTheNewestEightLogsAreKept) {
  tests::write_file(directory_ / "errors-mine.txt", "not a log of ours");
  for (int i = 0; i < 12; ++i) {
    create().record_error(ErrorId::kInternal, "x", "y");
    wall_ns_ += 1'000'000'000;
  }
  const std::vector<std::string> names = files();
  ASSERT_EQ(names.size(), 10u);  // eight logs, the other file, stats
  EXPECT_EQ(names[0], "errors-2023-11-14T22-13-23.000Z.log");
  EXPECT_EQ(names[7], "errors-2023-11-14T22-13-30.000Z.log");
  EXPECT_EQ(names[8], "errors-mine.txt");
}

TEST_F(StatsFile, AFormerFileThatIsNoneOfOursIsReplacedAndSaidSo) {
  tests::write_file(path_, std::string(5000, 'x'));
  const StatsWriter writer = create();
  EXPECT_NE(writer.export_problem().find("INVALID_ARGUMENT"), std::string::npos);
  EXPECT_EQ(open().identity().engine_name, "test");
}

TEST_F(StatsFile, WhatAnEngineLeftThatDiedWhileMakingTheFileIsNoObstacle) {
  tests::write_file(path_ + ".new", "half");
  create();
  EXPECT_EQ(files(), std::vector<std::string>{"stats"});
}

TEST_F(StatsFile, AMissingDirectoryIsNamed) {
  const Result<StatsWriter> writer = StatsWriter::create("/nonexistent/stats", options_);
  EXPECT_EQ(writer.code(), Code::kNoResources);
  EXPECT_NE(writer.status().message().find("/nonexistent/stats"), std::string::npos);
}

TEST_F(StatsFile, APlaceThatCannotBeReplacedIsNamedAndNothingIsLeft) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(StatsWriter::create(path_, options_).code(), Code::kNoResources);
  EXPECT_EQ(files(), std::vector<std::string>{"stats"});
}

TEST_F(StatsFile, CountsThatWouldFillTheMemoryAreRefused) {
  options_.clients = UINT32_MAX;
  options_.channels_per_client = UINT32_MAX;
  EXPECT_EQ(StatsWriter::create(path_, options_).code(), Code::kInvalidArgument);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace wherry::shm
