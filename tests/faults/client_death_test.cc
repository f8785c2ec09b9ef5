// The end of a client, however it comes: seen, everything given back, nobody else disturbed.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <random>

#include "shm/stats_reader.h"
#include "tests/support/counts.h"
#include "tests/support/engine_holdings.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kPage = 4096;

// Waits until the name can be had again, which is when the last thing of its former owner is
// released.
template <typename Engine>
void wait_until_free(Engine& engine, const std::string& instance) {
  RawClient next(engine.socket_path());
  std::string code;
  do {
    code = code_of(next.attach(instance));
  } while (code == "ALREADY_EXISTS");
  EXPECT_EQ(code, "OK");
  EXPECT_EQ(code_of(next.call("detach")), "OK");
}

std::string error_text(const std::string& run_dir, shm::ErrorId id) {
  Result<shm::StatsReader> stats = shm::StatsReader::open(run_dir + "/stats");
  EXPECT_TRUE(stats.ok());
  for (const shm::ErrorRecord& error : stats->errors()) {
    if (error.error == static_cast<uint32_t>(id)) return error.subject + ": " + error.text;
  }
  return "";
}

// A client in a process of its own, with a channel, a region and a publication. `body` runs in the
// child, which never returns from it.
pid_t client_process(const std::string& socket_path, const std::function<void(RawClient&)>& body) {
  const pid_t child = forked();
  if (child != 0) return child;
  RawClient client(socket_path);
  client.attach("mortal");
  const auto rings = client.channel();
  const shm::UniqueFd memory = sealed_memory(4 * kPage);
  const uint64_t layout = client.layout(client.region(memory.get(), 4 * kPage), 8);
  client.call("publish", {{"layout", layout}, {"tier", 2}, {"rights", "read"}, {"to", "*"}});
  body(client);
  _exit(0);
}

uint64_t find(RawClient& client) {
  const json found = client.call(
      "find_layout", {{"instance", "mortal"}, {"rank", 0}, {"tier", 2}, {"timeout_ms", 60'000}});
  EXPECT_EQ(code_of(found), "OK") << found;
  return found.value("handle", uint64_t{0});
}

TEST(ClientDeath, AKilledClientIsSeenAndItsFindersAreTold) {
  ForkedEngine engine;  // no threads here: this process forks
  RawClient witness(engine.socket_path());
  witness.attach("witness");
  const pid_t child = client_process(engine.socket_path(), [](RawClient&) { pause(); });
  const uint64_t found = find(witness);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(witness.event("stale")["handles"], json::array({found}));
  wait_until_free(engine, "mortal");
  waitpid(child, nullptr, 0);
  EXPECT_NE(error_text(engine.run_dir(), shm::ErrorId::kClientLost).find("mortal/0"),
            std::string::npos);
}

TEST(ClientDeath, AChildThatHoldsTheSocketDoesNotKeepADeadClientAlive) {
  ForkedEngine engine;  // no threads here: this process forks
  RawClient witness(engine.socket_path());
  witness.attach("witness");
  int ends[2];
  int ready[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = client_process(engine.socket_path(), [&](RawClient&) {
    // The grandchild inherits the socket and lives as long as the test holds the pipe's other end.
    if (fork() == 0) {
      close(ends[1]);
      char byte = 0;
      [[maybe_unused]] const ssize_t said = write(ready[1], &byte, 1);
      [[maybe_unused]] const ssize_t ignored = read(ends[0], &byte, 1);
      _exit(0);
    }
    pause();
  });
  const uint64_t found = find(witness);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);  // the grandchild is there
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(witness.event("stale")["handles"], json::array({found}));
  EXPECT_NE(error_text(engine.run_dir(), shm::ErrorId::kClientLost).find("its process ended"),
            std::string::npos);
  wait_until_free(engine, "mortal");
  waitpid(child, nullptr, 0);
  for (const int fd : {ends[0], ends[1], ready[0], ready[1]}) close(fd);
}

TEST(ClientDeath, AStoppedClientIsNotTakenForDead) {
  ForkedEngine engine;  // no threads here: this process forks
  RawClient witness(engine.socket_path());
  witness.attach("witness");
  const pid_t child = client_process(engine.socket_path(), [](RawClient&) { pause(); });
  find(witness);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  RawClient other(engine.socket_path());
  EXPECT_EQ(code_of(other.attach("mortal")), "ALREADY_EXISTS");
  EXPECT_NE(find(witness), 0u) << "its publication is still there";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  wait_until_free(engine, "mortal");
}

TEST(ClientDeath, ABrokenContractEndsThatSessionOnlyAndNamesTheBreach) {
  EngineHost engine;
  RawClient good(engine.socket_path());
  good.attach("good");
  RawClient bad(engine.socket_path());
  bad.attach("bad");
  const auto rings = bad.channel();
  shm::SubmitHead head{};
  head.op = 99;
  rings->publish(head);
  const json closing = bad.event("closing");
  EXPECT_NE(closing["reason"].get<std::string>().find("unknown op"), std::string::npos) << closing;
  EXPECT_TRUE(bad.hung_up());
  EXPECT_EQ(rings->state(), shm::ChannelState::kClosed);
  EXPECT_NE(error_text(engine->run_dir(), shm::ErrorId::kClientViolation).find("unknown op"),
            std::string::npos);
  EXPECT_EQ(code_of(good.call("transports")), "OK");
  wait_until_free(engine, "bad");
}

TEST(ClientDeath, PagesTakenAwayUnderATransferFailItAndNothingElse) {
  // Only huge pages can be taken away under an engine's mapping; without any the case cannot come
  // about.
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  Result<shm::UniqueFd> memory = shm::create_memory("huge", 2 * kHuge, kHuge);
  if (!memory.ok()) GTEST_SKIP() << "no huge pages: " << memory.status().to_string();
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  const uint64_t region = client.region(memory->get(), 2 * kHuge);
  const uint64_t source = client.layout(region, 8);
  const shm::UniqueFd other = sealed_memory(kPage);
  const uint64_t destination = client.layout(client.region(other.get(), kPage), 8);
  const auto rings = client.channel();
  ASSERT_EQ(fallocate(memory->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * kHuge), 0);
  std::vector<shm::UniqueFd> hoard;
  while (true) {
    Result<shm::UniqueFd> more = shm::create_memory("hoard", kHuge, kHuge);
    if (!more.ok()) break;
    hoard.push_back(std::move(*more));
  }
  rings->transfer(source, destination);
  while (!rings->completions.ready()) std::this_thread::yield();
  EXPECT_EQ(code_of(*rings->reap()), "MEMORY_FAULT");
  EXPECT_EQ(code_of(client.call("transports")), "OK");
}

int cycles() { return static_cast<int>(counted(2000)); }

class ManyLives : public ::testing::Test {
 protected:
  // Everything a client can hold, and the end in one of four ways.
  void guest(int way) {
    RawClient client(path_);
    client.attach("guest");
    const auto rings = client.channel({{"descriptor", true}});
    const shm::UniqueFd memory = sealed_memory(4 * kPage);
    const uint64_t region = client.region(memory.get(), 4 * kPage);
    const uint64_t layout = client.layout(region, 8);
    client.call("publish", {{"layout", layout}, {"tier", 2}, {"rights", "read"}, {"to", "*"}});
    client.call("find_layout",
                {{"instance", "guest"}, {"rank", 0}, {"tier", 2}, {"timeout_ms", 0}});
    client.call("find_client", {{"instance", "guest"}, {"rank", 0}});
    client.call("open_channel");  // offered, never mapped
    rings->transfer(layout, layout, {0, 5});
    if (way == 0) client.call("detach");
    if (way == 1) {  // hung up in the middle of things
      client.send("find_layout",
                  {{"instance", "nobody"}, {"rank", 0}, {"tier", 2}, {"timeout_ms", 60'000}});
      Descriptors more;
      more.push_back(duplicate(memory.get()));
      client.send("register_region", {{"offset", 0}, {"length", kPage}}, std::move(more));
      client.send("open_channel");
    }
    if (way == 2) {  // a violation
      shm::SubmitHead nonsense{};
      rings->publish(nonsense);
      client.hung_up();
    }
    if (way == 3) {  // the long way round
      client.call("unpublish", {{"layout", layout}});
      client.call("free_layout", {{"handle", layout}});
      client.call("free_region", {{"handle", region}});
      client.call("close_channel", {{"channel", rings->number}});
      client.call("detach");
    }
  }

  void wait_until_gone() { test::wait_until_gone(engine_, admin_, "guest"); }

  ForkedEngine engine_;
  const std::string path_ = engine_.socket_path();
  RawClient admin_{path_};
};

TEST_F(ManyLives, NothingIsLeftOfClientsThatCameAndWent) {
  for (int i = 0; i < 20; ++i) guest(i % 4), wait_until_gone();
  const Holdings before = holdings_of(engine_);
  for (int i = 0; i < cycles(); ++i) guest(i % 4), wait_until_gone();
  expect_nothing_left(engine_, before);
}

TEST_F(ManyLives, NothingIsLeftOfClientsKilledAtAnyMoment) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto killed_guest = [&](uint32_t after_us) {
    const pid_t child = forked();
    if (child == 0) {
      guest(3);
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(after_us));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    wait_until_gone();
  };
  for (int i = 0; i < 20; ++i) killed_guest(random() % 20'000);
  const Holdings before = holdings_of(engine_);
  for (int i = 0; i < cycles(); ++i) killed_guest(random() % 20'000);
  expect_nothing_left(engine_, before);
}

}  // namespace
}  // namespace wherry::test
