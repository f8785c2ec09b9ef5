// The engine's life: states, drain, stop, kill, signals, administration, a second engine.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "engine/control/control_thread.h"
#include "shm/inflight.h"
#include "shm/stats_reader.h"
#include "tests/support/forked_engine.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kPage = 4096;

shm::StatsState state_in_stats(const std::string& run_dir) {
  Result<shm::StatsReader> stats = shm::StatsReader::open(run_dir + "/stats");
  EXPECT_TRUE(stats.ok()) << stats.status().to_string();
  return stats.ok() ? stats->state() : shm::StatsState{};
}

TEST(LifeCycle, ADrainTellsClientsEndsByItselfAndLeavesLockAndStats) {
  EngineHost engine;
  const std::string run_dir = engine->run_dir();
  RawClient client(engine.socket_path());
  client.attach("a");
  const auto rings = client.channel();
  EXPECT_EQ(state_in_stats(run_dir).state, shm::EngineState::kRunning);
  RawClient admin(engine.socket_path());
  EXPECT_EQ(code_of(admin.call("admin", {{"command", "drain"}, {"reason", "new release"}})), "OK");
  json event = client.event("state");
  EXPECT_EQ(event["state"], "draining");
  EXPECT_EQ(event["reason"], "new release");
  EXPECT_EQ(client.event("state")["state"], "stopped");
  EXPECT_TRUE(client.hung_up());
  EXPECT_TRUE(admin.hung_up());
  EXPECT_TRUE(engine.wait().ok());
  EXPECT_EQ(rings->state(), shm::ChannelState::kClosed);
  const shm::StatsState state = state_in_stats(run_dir);
  EXPECT_EQ(state.state, shm::EngineState::kStopped);
  EXPECT_EQ(state.reason, "new release");
  EXPECT_FALSE(std::filesystem::exists(run_dir + "/engine.sock"));
  EXPECT_TRUE(std::filesystem::exists(run_dir + "/engine.lock"));
}

// External pollers and one thread: nothing happens but what the test does.
TEST(LifeCycle, ADrainFinishesWhatWasAcceptedAndRefusesWhatIsNew) {
  constexpr uint64_t kBlock = uint64_t{8} << 20;
  EngineHost engine(
      [](engine::Config* config) { config->pollers[0].idle = engine::IdleStrategy::kExternal; });
  RawClient client(engine.socket_path());
  client.attach("a");
  const shm::UniqueFd memory = sealed_memory(kBlock);
  const shm::UniqueFd target = sealed_memory(kBlock);
  const uint64_t source = client.block_layout(client.region(memory.get(), kBlock), kBlock);
  const uint64_t destination = client.block_layout(client.region(target.get(), kBlock), kBlock);
  std::unique_ptr<RawRings> rings;
  std::atomic<bool> done{false};
  std::thread other([&] {
    rings = client.channel();
    done = true;
  });
  while (!done) engine->poller(0)->poll_once();
  other.join();
  rings->transfer(source, destination);
  for (int i = 0; i < 3; ++i) engine->poller(0)->poll_once();
  engine->request_drain(std::chrono::milliseconds(0), "test");
  EXPECT_EQ(client.event("state")["state"], "draining");
  EXPECT_EQ(code_of(client.call("open_channel")), "DRAINING");
  EXPECT_EQ(code_of(client.call("find_client", {{"instance", "a"}, {"rank", 0}})), "DRAINING");
  RawClient late(engine.socket_path());
  const json refused = late.attach("late");
  EXPECT_EQ(code_of(refused), "DRAINING");
  EXPECT_NE(refused.value("message", "").find("test"), std::string::npos) << refused;
  EXPECT_FALSE(rings->completions.ready());
  while (rings->state() != shm::ChannelState::kDraining) engine->poller(0)->poll_once();
  rings->transfer(source, destination);
  while (rings->state() != shm::ChannelState::kClosed) engine->poller(0)->poll_once();
  EXPECT_TRUE(engine.wait().ok());
  std::map<uint64_t, std::string> codes;
  while (const auto completion = rings->reap())
    codes[completion->request_id] = code_of(*completion);
  EXPECT_EQ(codes, (std::map<uint64_t, std::string>{{1, "OK"}, {2, "DRAINING"}}));
}

TEST(LifeCycle, ADrainThatTakesTooLongBecomesAStop) {
  EngineHost engine(
      [](engine::Config* config) { config->pollers[0].idle = engine::IdleStrategy::kExternal; });
  RawClient client(engine.socket_path());
  client.attach("a");
  engine->request_drain(std::chrono::milliseconds(1), "hurry");
  // Nobody drives the poller, so it never says that it is idle.
  EXPECT_EQ(client.event("state")["reason"], "hurry");
  const json event = client.event("state");
  EXPECT_NE(event["reason"].get<std::string>().find("not drained within 1 ms"), std::string::npos)
      << event;
  EXPECT_TRUE(engine.wait().ok());
}

TEST(LifeCycle, AStopReachesClientsWithItsReason) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  engine->request_stop("enough");
  EXPECT_EQ(client.event("state")["reason"], "enough");
  EXPECT_NE(client.event("closing"), nullptr);
  EXPECT_TRUE(client.hung_up());
  EXPECT_TRUE(engine.wait().ok());
}

TEST(LifeCycle, AnEngineRunsTurnByTurnOnOneThread) {
  const tests::TemporaryDirectory directory;
  engine::Config config = test_config(directory);
  config.pollers[0].idle = engine::IdleStrategy::kExternal;
  auto engine = engine::Engine::start(config);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  RawClient client((*engine)->socket_path());
  Descriptors pidfd;
  pidfd.push_back(pidfd_of(getpid()));
  const uint64_t hello = client.send("hello", RawClient::hello("a", 0), std::move(pidfd));
  while (!client.answered(hello)) EXPECT_TRUE((*engine)->run_once(0));
  EXPECT_EQ(code_of(client.reply(hello)), "OK");
  (*engine)->request_stop("over");
  while ((*engine)->run_once(0)) (*engine)->poller(0)->poll_once();
  EXPECT_FALSE((*engine)->run_once(0)) << "it has ended";
}

TEST(LifeCycle, AnEngineThatIsDestroyedStopsFirst) {
  const tests::TemporaryDirectory directory;
  std::string run_dir;
  {
    auto engine = engine::Engine::start(test_config(directory));
    ASSERT_TRUE(engine.ok());
    run_dir = (*engine)->run_dir();
  }
  EXPECT_EQ(state_in_stats(run_dir).state, shm::EngineState::kStopped);
}

TEST(LifeCycle, ASecondEngineIsRefusedNamingTheFirst) {
  const tests::TemporaryDirectory directory;
  auto first = engine::Engine::start(test_config(directory));
  ASSERT_TRUE(first.ok());
  const auto second = engine::Engine::start(test_config(directory));
  EXPECT_EQ(second.code(), Code::kAlreadyExists);
  EXPECT_NE(second.status().message().find(std::to_string(getpid())), std::string::npos)
      << second.status().message();
  RawClient client((*first)->socket_path());
  EXPECT_EQ((*first)->stats().header().state.load(),
            static_cast<uint32_t>(shm::EngineState::kRunning));
}

TEST(LifeCycle, AKillEndsTheProcessAtOnceAndSaysWhy) {
  ForkedEngine engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  RawClient admin(engine.socket_path());
  EXPECT_EQ(code_of(admin.call("admin", {{"command", "kill"}, {"reason", "a test"}})), "OK");
  const json event = client.event("state");
  EXPECT_EQ(event["state"], "failed");
  EXPECT_EQ(event["reason"], "killed: a test");
  EXPECT_EQ(engine.exit_status(), engine::kKilledExitStatus);
  const shm::StatsState state = state_in_stats(engine.run_dir());
  EXPECT_EQ(state.state, shm::EngineState::kFailed);
  EXPECT_EQ(state.reason, "killed: a test");
}

// Copies that take seconds, so that the end comes in the middle of them.
TEST(LifeCycle, AfterAKillEveryRequestIsEitherCompleteOrMarkedOrWasNotStarted) {
  constexpr uint64_t kBlock = uint64_t{64} << 20;
  constexpr uint64_t kRequests = 100;
  ForkedEngine engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  const shm::UniqueFd pidfd = pidfd_of(engine.pid());
  const shm::UniqueFd memory = sealed_memory(kBlock);
  const shm::UniqueFd target = sealed_memory(kBlock);
  const uint64_t source = client.block_layout(client.region(memory.get(), kBlock), kBlock);
  const uint64_t destination = client.block_layout(client.region(target.get(), kBlock), kBlock);
  const auto rings = client.channel();
  for (uint64_t i = 0; i < kRequests; ++i) rings->transfer(source, destination);
  // Two: the first may have been served before the others were there.
  std::set<uint64_t> complete;
  while (complete.size() < 2) {
    if (const auto completion = rings->reap()) complete.insert(completion->request_id);
  }
  RawClient admin(engine.socket_path());
  admin.send("admin", {{"command", "kill"}});
  pollfd gone{pidfd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&gone, 1, 60'000), 1);
  EXPECT_EQ(engine.exit_status(), engine::kKilledExitStatus);
  EXPECT_EQ(client.event("state")["state"], "failed");
  EXPECT_TRUE(client.hung_up());

  const shm::InflightReader inflight(
      rings->e2c.at<const std::atomic<uint64_t>>(rings->e2c_header.inflight_offset),
      rings->e2c_header.completion_slots);
  while (const auto completion = rings->reap()) {
    EXPECT_EQ(code_of(*completion), "OK");
    EXPECT_TRUE(complete.insert(completion->request_id).second) << "completed twice";
  }
  uint64_t marked = 0;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    if (complete.count(id) == 0 && inflight.contains(id)) ++marked;
  }
  EXPECT_GE(marked, 1u) << "what was being copied has an unknown outcome";
  EXPECT_LT(complete.size() + marked, kRequests) << "what waited was not started";
}

TEST(LifeCycle, AfterSigkillTheNextEngineTakesOverAndKeepsTheErrorsOfTheFormer) {
  ForkedEngine former;
  RawClient client(former.socket_path());
  json hello = RawClient::hello("stranger", 0);
  hello["layout_major"] = 77;
  EXPECT_EQ(code_of(client.call("hello", hello)), "VERSION_MISMATCH");
  former.signal(SIGKILL);
  former.exit_status();
  EXPECT_TRUE(std::filesystem::exists(former.run_dir() + "/engine.sock")) << "left behind";
  auto next = engine::Engine::start(test_config(former.directory()));
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  const std::string& log = (*next)->stats().exported_errors();
  ASSERT_NE(log, "");
  EXPECT_NE(tests::read_file(log).find("attach_refused stranger/0"), std::string::npos)
      << tests::read_file(log);
  EXPECT_TRUE(shm::ControlSocket::connect((*next)->socket_path()).ok());
  EXPECT_EQ(state_in_stats(former.run_dir()).state, shm::EngineState::kRunning);
}

// What a crash in the middle of a start, a full disk or a careless person may leave.
TEST(LifeCycle, LeftoversOfEveryKindAreNoObstacle) {
  const tests::TemporaryDirectory directory;
  const engine::Config config = test_config(directory);
  const std::string& dir = config.run_dir;
  const std::pair<const char*, std::function<void()>> leftovers[] = {
      {"nothing but the directory", [&] { std::filesystem::create_directories(dir); }},
      {"an empty lock", [&] { tests::write_file(dir + "/engine.lock", ""); }},
      {"a lock of garbage", [&] { tests::write_file(dir + "/engine.lock", "\xff 12 x\n"); }},
      {"a lock of a process that is gone",
       [&] { tests::write_file(dir + "/engine.lock", "4194304 1 test\n"); }},
      {"a file for a socket", [&] { tests::write_file(dir + "/engine.sock", "x"); }},
      {"a link for a socket",
       [&] { std::filesystem::create_symlink("/nonexistent", dir + "/engine.sock"); }},
      {"empty stats", [&] { tests::write_file(dir + "/stats", ""); }},
      {"stats of garbage", [&] { tests::write_file(dir + "/stats", std::string(100'000, 'x')); }},
      {"stats that are a link",
       [&] {
         std::filesystem::remove(dir + "/stats");
         std::filesystem::create_symlink("/nonexistent", dir + "/stats");
       }},
      {"half-made stats", [&] { tests::write_file(dir + "/stats.new", "x"); }},
      {"stats cut in half", [&] { std::filesystem::resize_file(dir + "/stats", 5000); }},
  };
  for (const auto& [name, leave] : leftovers) {
    SCOPED_TRACE(name);
    leave();
    const auto engine = engine::Engine::start(config);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    EXPECT_TRUE(shm::ControlSocket::connect((*engine)->socket_path()).ok());
    EXPECT_EQ(state_in_stats(dir).state, shm::EngineState::kRunning);
  }
}

TEST(LifeCycle, AStartThatFailsSaysSoInTheStatsAndLeavesTheDirectoryFree) {
  const tests::TemporaryDirectory directory;
  engine::Config config = test_config(directory);
  config.transports.memory.enabled = false;
  const auto refused = engine::Engine::start(config);
  EXPECT_EQ(refused.code(), Code::kNoTransport);
  const shm::StatsState state = state_in_stats(config.run_dir);
  EXPECT_EQ(state.state, shm::EngineState::kFailed);
  EXPECT_EQ(state.reason, refused.status().message());
  config.transports.memory.enabled = true;
  EXPECT_TRUE(engine::Engine::start(config).ok());
}

TEST(LifeCycle, StatsCanBeReadAtAnyMomentOfEveryLife) {
  const tests::TemporaryDirectory directory;
  const std::string run_dir = test_config(directory).run_dir;
  { ASSERT_TRUE(engine::Engine::start(test_config(directory)).ok()); }
  std::atomic<bool> over{false};
  std::map<shm::EngineState, uint64_t> seen;
  uint64_t clients = 0;
  std::thread reader([&] {
    while (!over) {
      const Result<shm::StatsReader> stats = shm::StatsReader::open(run_dir + "/stats");
      ASSERT_TRUE(stats.ok()) << stats.status().to_string();
      ++seen[stats->state().state];
      for (const shm::ClientRecord& client : stats->clients()) {
        EXPECT_EQ(client.instance, "a");
        ++clients;
      }
    }
  });
  for (int life = 0; life < 20; ++life) {
    auto engine = engine::Engine::start(test_config(directory));
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    std::thread control([&engine] { EXPECT_TRUE((*engine)->run().ok()); });
    {
      RawClient client((*engine)->socket_path());
      EXPECT_EQ(code_of(client.attach("a")), "OK");
      const shm::UniqueFd memory = sealed_memory(kPage);
      client.region(memory.get(), kPage);
      client.channel();
    }
    if (life % 2 == 0) {
      (*engine)->request_drain(std::chrono::milliseconds(0), "drained");
    } else {
      (*engine)->request_stop("stopped");
    }
    control.join();
  }
  over = true;
  reader.join();
  EXPECT_GT(seen[shm::EngineState::kRunning], 0u);
  EXPECT_GT(clients, 0u);
}

// Makes that system call fail as an old filter of a container does, which does not know it.
void forbid(uint32_t system_call) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) _exit(101);
}

TEST(LifeCycle, AFilterThatDoesNotKnowTheNewerWaitIsNoObstacle) {
  ForkedEngine engine({}, [] { forbid(SYS_epoll_pwait2); });
  RawClient client(engine.socket_path());
  EXPECT_EQ(code_of(client.attach("a")), "OK");
  const shm::UniqueFd memory = sealed_memory(kPage);
  EXPECT_NE(client.region(memory.get(), kPage), 0u);
}

TEST(LifeCycle, SigtermDrainsAndASecondSignalStops) {
  engine::EngineOptions options;
  options.handle_signals = true;
  ForkedEngine engine(options);
  RawClient client(engine.socket_path());
  client.attach("a");
  engine.signal(SIGTERM);
  EXPECT_EQ(client.event("state")["reason"], "SIGTERM");
  engine.signal(SIGINT);
  EXPECT_TRUE(client.hung_up());
  EXPECT_EQ(engine.exit_status(), 0);
  EXPECT_EQ(state_in_stats(engine.run_dir()).state, shm::EngineState::kStopped);
}

TEST(Administration, StatusClientsAndTransportsSayWhatThereIs) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("prefill", 2);
  client.channel();
  const shm::UniqueFd memory = sealed_memory(kPage);
  client.layout(client.region(memory.get(), kPage), 1);
  RawClient admin(engine.socket_path());
  const json status = admin.call("admin", {{"command", "status"}});
  EXPECT_EQ(status["name"], "test");
  EXPECT_EQ(status["engine_version"], WHERRY_VERSION);
  EXPECT_EQ(status["pid"], getpid());
  EXPECT_EQ(status["state"], "running");
  EXPECT_EQ(status["clients"], 1);
  EXPECT_EQ(status["pollers"], json::array({{{"cpu", -1}, {"idle", "sleep"}}}));
  const json clients = admin.call("admin", {{"command", "clients"}});
  ASSERT_EQ(clients["clients"].size(), 1u) << clients;
  const json& one = clients["clients"][0];
  EXPECT_EQ(one["instance"], "prefill");
  EXPECT_EQ(one["rank"], 2);
  EXPECT_EQ(one["channels"], 1);
  EXPECT_EQ(one["regions"], 1);
  EXPECT_EQ(one["layouts"], 1);
  EXPECT_EQ(one["registered_bytes"], kPage);
  EXPECT_EQ(one["state"], "active");
  EXPECT_EQ(code_of(admin.call("admin", {{"command", "transports"}})), "OK");
  EXPECT_EQ(code_of(admin.call("admin", {{"command", "dance"}})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(admin.call("transports")), "INVALID_ARGUMENT");
}

// Runs `body` on a thread with other credentials: those of a Linux thread are its own until the C
// library makes them the process's.
void as_user(uid_t uid, gid_t group, const std::function<void()>& body) {
  std::thread thread([&] {
    if (syscall(SYS_setgroups, 1, &group) != 0 ||
        syscall(SYS_setresgid, 65534, 65534, 65534) != 0 ||
        syscall(SYS_setresuid, uid, uid, uid) != 0) {
      ADD_FAILURE() << "no other user to be had";
      return;
    }
    body();
  });
  thread.join();
}

TEST(Administration, IsForRootTheOwnerAndTheAdminGroupOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be somebody else";
  EngineHost engine([](engine::Config* config) {
    config->admin_group = "daemon";
    config->socket.mode = 0666;
  });
  for (std::string path = engine->run_dir(); path != "/tmp";
       path = std::filesystem::path(path).parent_path()) {
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
    if (path.find("wherry-test-") == std::string::npos) break;
  }
  as_user(65534, 65534, [&] {
    RawClient somebody(engine.socket_path());
    const json refused = somebody.call("admin", {{"command", "stop"}});
    EXPECT_EQ(code_of(refused), "NOT_PERMITTED");
    EXPECT_NE(refused.value("message", "").find("uid 65534"), std::string::npos) << refused;
  });
  as_user(65534, 1, [&] {
    RawClient member(engine.socket_path());
    EXPECT_EQ(code_of(member.call("admin", {{"command", "status"}})), "OK");
  });
}

}  // namespace
}  // namespace wherry::test
