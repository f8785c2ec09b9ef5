// Clients that take more than their share, or send what hurts: they get no further, and nobody else
// notices.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/layout.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kPage = 4096;

bool mentions(const json& reply, const std::string& text) {
  return reply.is_object() && reply.value("message", "").find(text) != std::string::npos;
}

TEST(HostileClient, ConnectionsThatSayNothingGiveWayToThoseThatDo) {
  EngineHost engine([](engine::Config* config) { config->limits.clients = 2; });
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<RawClient>(engine.socket_path()));
    if (i % 50 != 49) continue;
    RawClient client(engine.socket_path());
    EXPECT_EQ(code_of(client.attach("a", static_cast<uint32_t>(i))), "OK") << i;
    EXPECT_EQ(code_of(client.call("detach")), "OK");
  }
  const json reason = silent.front()->event("closing");
  EXPECT_NE(reason.value("reason", "").find("no hello"), std::string::npos) << reason;
  EXPECT_TRUE(silent.front()->hung_up());
}

// Found handles, as an administrator sees them.
uint64_t found_handles(RawClient& admin, const std::string& instance) {
  const json reply = admin.call("admin", {{"command", "clients"}});
  for (const json& client : reply["clients"]) {
    if (client["instance"] == instance) return client["found"];
  }
  return 0;
}

TEST(HostileClient, AClientThatDoesNotReadIsNotServedFurtherUntilItDoes) {
  constexpr uint64_t kRequests = 1000;
  EngineHost engine;
  RawClient admin(engine.socket_path());
  RawClient client(engine.socket_path());
  client.attach("a");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < kRequests; ++i) {
    ids.push_back(client.send("find_client", {{"instance", "a"}, {"rank", 0}}));
  }
  uint64_t served = 0;
  uint64_t before = 1;
  for (; served != before; served = found_handles(admin, "a")) {
    before = served;
    // Time for what there is to serve.
    for (int i = 0; i < 100; ++i) admin.call("admin", {{"command", "status"}});
  }
  EXPECT_GT(served, 0u);
  EXPECT_LT(served, 200u);
  for (const uint64_t id : ids) EXPECT_EQ(code_of(client.reply(id)), "OK");
  EXPECT_EQ(found_handles(admin, "a"), kRequests);
}

TEST(HostileClient, AClientThatNeverReadsHoldsUpNobodyAndLeavesItsNameFree) {
  EngineHost engine;
  RawClient good(engine.socket_path());
  good.attach("good");
  RawClient bad(engine.socket_path());
  bad.attach("bad");
  for (int i = 0; i < 20'000; ++i) bad.send("transports");
  EXPECT_EQ(code_of(good.call("transports")), "OK");
  bad.close();
  RawClient again(engine.socket_path());
  while (code_of(again.attach("bad")) == "ALREADY_EXISTS") {
  }
}

// Lowers the limit of this process, which holds both the engine and its clients.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{count, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Each takes tens of milliseconds to make.
TEST(HostileClient, LargeRingsBeingMadeHoldUpNobodyElse) {
  EngineHost engine(
      [](engine::Config* config) { config->limits.submission_slots = shm::kMaxRingSlots; });
  RawClient large(engine.socket_path());
  large.attach("large");
  uint64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    last = large.send("open_channel", {{"submission_slots", shm::kMaxRingSlots}});
  }
  RawClient other(engine.socket_path());
  EXPECT_EQ(code_of(other.attach("other")), "OK");
  EXPECT_FALSE(large.answered(last));
  EXPECT_EQ(code_of(large.reply(last)), "OK");
}

TEST(HostileClient, AClientWithManyLeavesDescriptorsForTheOthers) {
  const FewDescriptors few(256);
  EngineHost engine([](engine::Config* config) { config->limits.clients = 4; });
  RawClient greedy(engine.socket_path());
  greedy.attach("greedy");
  json reply;
  for (int i = 0; i < 300 && code_of(reply) != "NO_RESOURCES"; ++i) {
    Descriptors memory;
    memory.push_back(sealed_memory(kPage));
    reply = greedy.call("register_region", {{"offset", 0}, {"length", kPage}}, std::move(memory));
    ASSERT_NE(reply, nullptr);
  }
  EXPECT_TRUE(mentions(reply, "ulimit -n")) << reply;
  RawClient modest(engine.socket_path());
  EXPECT_EQ(code_of(modest.attach("modest")), "OK");
  EXPECT_NE(modest.channel({{"descriptor", true}}), nullptr);
}

// One end of a TCP connection whose last close waits, for an hour, until the other end, `reader`,
// has got what was sent.
shm::UniqueFd lingering_socket(shm::UniqueFd* reader) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  const shm::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  shm::UniqueFd writer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(listener.get(), name, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), name, &size), 0);
  EXPECT_EQ(connect(writer.get(), name, size), 0);
  reader->reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger hour{1, 3600};
  EXPECT_EQ(setsockopt(writer.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
  const std::string text(64 * 1024, 'x');
  while (send(writer.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  return writer;
}

// The engine turns on this thread: a close that waits would end the test by its time limit.
TEST(HostileClient, ADescriptorWhoseCloseWaitsHoldsUpNobody) {
  const tests::TemporaryDirectory directory;
  engine::Config config = test_config(directory);
  config.pollers[0].idle = engine::IdleStrategy::kExternal;
  auto engine = engine::Engine::start(config);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto ask = [&](RawClient& client, const std::string& type, const json& fields,
                       shm::UniqueFd fd) {
    Descriptors descriptors;
    descriptors.push_back(std::move(fd));
    const uint64_t id = client.send(type, fields, std::move(descriptors));
    while (!client.answered(id)) (*engine)->run_once(0);
    return code_of(client.reply(id));
  };
  RawClient client((*engine)->socket_path());
  shm::UniqueFd readers[4];
  EXPECT_EQ(ask(client, "hello", RawClient::hello("a", 0), lingering_socket(&readers[0])),
            "INVALID_ARGUMENT");
  EXPECT_EQ(ask(client, "hello", RawClient::hello("a", 0), pidfd_of(getpid())), "OK");
  EXPECT_EQ(ask(client, "transports", json::object(), lingering_socket(&readers[1])),
            "INVALID_ARGUMENT");
  EXPECT_EQ(ask(client, "register_region", {{"offset", 0}, {"length", kPage}},
                lingering_socket(&readers[2])),
            "INVALID_ARGUMENT");
  {
    Descriptors many;
    many.push_back(lingering_socket(&readers[3]));
    while (many.size() <= shm::kMaxDescriptors) many.push_back(duplicate(many[0].get()));
    EXPECT_EQ(send_packet(client.socket().fd(), "i{}", many), 3);
  }
  bool open = true;
  while (open) {
    (*engine)->run_once(0);
    open = client.socket().receive().ok();
  }
  for (shm::UniqueFd& reader : readers) reader.reset();  // ends the waiting
}

}  // namespace
}  // namespace wherry::test
