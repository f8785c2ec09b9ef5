// The control side over a real socket: attaching, channels, registration, limits, bad messages.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/stats_reader.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kPage = 4096;

bool mentions(const json& reply, const std::string& text) {
  return reply.is_object() && reply.value("message", "").find(text) != std::string::npos;
}

std::vector<shm::ClientRecord> clients_in_stats(EngineHost& engine) {
  Result<shm::StatsReader> stats = shm::StatsReader::open(engine->run_dir() + "/stats");
  EXPECT_TRUE(stats.ok());
  return stats.ok() ? stats->clients() : std::vector<shm::ClientRecord>{};
}

TEST(Attach, AHelloIsAnsweredWithWhatTheClientNeeds) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  Descriptors pidfd;
  pidfd.push_back(pidfd_of(getpid()));
  Descriptors received;
  const json reply =
      client.call("hello", RawClient::hello("prefill", 3), std::move(pidfd), &received);
  EXPECT_EQ(code_of(reply), "OK") << reply;
  EXPECT_EQ(reply["protocol"], 1);
  EXPECT_EQ(reply["engine"], "test");
  EXPECT_EQ(reply["state"], "running");
  EXPECT_EQ(reply["pollers"], 1);
  EXPECT_EQ(reply["clock_offset_ns"], 0);
  EXPECT_EQ(reply["limits"]["channels_per_client"], 16);
  EXPECT_NE(reply["engine_incarnation"], 0);
  EXPECT_NE(reply["incarnation"], 0);
  EXPECT_EQ(received.size(), 1u) << "the engine's pidfd";
  const auto clients = clients_in_stats(engine);
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].instance, "prefill");
  EXPECT_EQ(clients[0].rank, 3u);
  EXPECT_EQ(clients[0].pid, static_cast<uint32_t>(getpid()));
}

TEST(Attach, AClientOfAnotherProtocolOrLayoutIsToldBothVersions) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  json hello = RawClient::hello("prefill", 0);
  hello["protocol_min"] = 8;
  hello["protocol_max"] = 9;
  json reply = client.call("hello", hello);
  EXPECT_EQ(code_of(reply), "VERSION_MISMATCH");
  EXPECT_TRUE(mentions(reply, "1 to 1") && mentions(reply, "8 to 9")) << reply;
  hello = RawClient::hello("prefill", 0);
  hello["layout_major"] = 77;
  reply = client.call("hello", hello);
  EXPECT_EQ(code_of(reply), "VERSION_MISMATCH");
  EXPECT_TRUE(mentions(reply, "1.0") && mentions(reply, "77.0")) << reply;
}

TEST(Attach, ATakenNameIsRefusedNamingTheOwnerAndFreeAfterItsEnd) {
  EngineHost engine;
  RawClient first(engine.socket_path());
  EXPECT_EQ(code_of(first.attach("prefill", 0)), "OK");
  RawClient second(engine.socket_path());
  const json reply = second.attach("prefill", 0);
  EXPECT_EQ(code_of(reply), "ALREADY_EXISTS");
  EXPECT_TRUE(mentions(reply, "pid " + std::to_string(getpid()))) << reply;
  EXPECT_EQ(code_of(second.attach("prefill", 1)), "OK");
  EXPECT_EQ(code_of(first.call("detach")), "OK");
  EXPECT_TRUE(first.hung_up());
  RawClient third(engine.socket_path());
  EXPECT_EQ(code_of(third.attach("prefill", 0)), "OK");
}

TEST(Attach, OneClientMoreThanTheLimitIsRefusedNamingIt) {
  EngineHost engine([](engine::Config* config) { config->limits.clients = 1; });
  RawClient first(engine.socket_path());
  EXPECT_EQ(code_of(first.attach("a")), "OK");
  RawClient second(engine.socket_path());
  const json reply = second.attach("b");
  EXPECT_EQ(code_of(reply), "NO_RESOURCES");
  EXPECT_TRUE(mentions(reply, "limits.clients") && mentions(reply, "limit of 1") &&
              mentions(reply, "0 of them just ending"))
      << reply;
}

TEST(Attach, OnlyAPidfdIsTakenForOne) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  EXPECT_EQ(code_of(client.call("hello", RawClient::hello("a", 0))), "INVALID_ARGUMENT");
  Descriptors other;
  other.push_back(sealed_memory(kPage));
  EXPECT_EQ(code_of(client.call("hello", RawClient::hello("a", 0), std::move(other))),
            "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(client.attach("a")), "OK") << "the connection is still good";
}

TEST(Attach, AConnectionThatSaysNothingIsClosedInTime) {
  engine::EngineOptions options;
  options.handshake_timeout_ns = 1'000'000;
  EngineHost engine({}, options);
  RawClient client(engine.socket_path());
  EXPECT_NE(client.event("closing"), nullptr);
  EXPECT_TRUE(client.hung_up());
}

TEST(Attach, BeforeAHelloNothingElseIsAnswered) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  EXPECT_EQ(code_of(client.call("transports")), "INVALID_ARGUMENT");
  client.send_text(std::string(shm::kMaxInlineBytes + 1, ' '));
  const json too_long = client.reply(0);
  EXPECT_TRUE(mentions(too_long, "before a hello")) << too_long;
  EXPECT_EQ(code_of(client.attach("a")), "OK");
  EXPECT_EQ(code_of(client.attach("b")), "INVALID_ARGUMENT") << "one hello a connection";
}

TEST(BadMessages, EachIsAnsweredOnceAndTheSessionGoesOn) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  EXPECT_EQ(code_of(client.call("dance")), "UNSUPPORTED");
  EXPECT_EQ(code_of(client.call("detach", {{"colour", "red"}})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(client.call("free_region", {{"handle", -1}})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(client.call("free_region", {{"handle", 12345}})), "STALE");
  EXPECT_EQ(code_of(client.call("register_region", {{"offset", 0}, {"length", kPage}})),
            "INVALID_ARGUMENT");
  Descriptors unwanted;
  unwanted.push_back(sealed_memory(kPage));
  EXPECT_EQ(code_of(client.call("transports", json::object(), std::move(unwanted))),
            "INVALID_ARGUMENT");
  client.send_text("no JSON");
  EXPECT_EQ(code_of(client.reply(0)), "INVALID_ARGUMENT");
  client.send_text(R"({"type":"transports","version":7,"id":555})");
  EXPECT_EQ(code_of(client.reply(555)), "VERSION_MISMATCH");
  EXPECT_EQ(code_of(client.call("transports")), "OK");
}

TEST(BadMessages, AConnectionThatBreaksTheFramingEndsAloneAndNobodyElseNotices) {
  EngineHost engine;
  RawClient good(engine.socket_path());
  good.attach("good");
  RawClient bad(engine.socket_path());
  bad.attach("bad");
  const char nonsense = 'x';
  ASSERT_EQ(::send(bad.socket().fd(), &nonsense, 1, 0), 1);
  EXPECT_TRUE(bad.hung_up());
  EXPECT_EQ(code_of(good.call("transports")), "OK");
}

TEST(Channels, TheFirstHasANotificationRingAndTheClientCanWriteOnlyItsOwnSegment) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  Descriptors received;
  json reply = client.call(
      "open_channel", {{"submission_slots", 64}, {"notification_slots", 32}, {"descriptor", true}},
      {}, &received);
  EXPECT_EQ(code_of(reply), "OK") << reply;
  ASSERT_EQ(received.size(), 4u);
  const auto size = [](int fd) { return static_cast<uint64_t>(lseek(fd, 0, SEEK_END)); };
  auto c2e =
      shm::MappedSegment::map(received[0].get(), size(received[0].get()), shm::Access::kReadWrite);
  ASSERT_TRUE(c2e.ok());
  auto e2c =
      shm::MappedSegment::map(received[1].get(), size(received[1].get()), shm::Access::kRead);
  ASSERT_TRUE(e2c.ok());
  EXPECT_FALSE(
      shm::MappedSegment::map(received[1].get(), size(received[1].get()), shm::Access::kReadWrite)
          .ok());
  const auto c2e_header = shm::read_header(*c2e, shm::SegmentKind::kC2e);
  const auto e2c_header = shm::read_header(*e2c, shm::SegmentKind::kE2c);
  ASSERT_TRUE(c2e_header.ok() && e2c_header.ok());
  EXPECT_EQ(c2e_header->submission_slots, 64u);
  EXPECT_EQ(e2c_header->notification_slots, 32u);
  EXPECT_EQ(code_of(client.call("channel_mapped", {{"channel", reply["channel"]}})), "OK");
  const auto* words = e2c->at<const shm::EngineWords>(e2c_header->words_offset);
  EXPECT_EQ(words->state.load(), static_cast<uint32_t>(shm::ChannelState::kActive));
  // Sealed now: no other mapping, no holes.
  EXPECT_FALSE(
      shm::MappedSegment::map(received[0].get(), size(received[0].get()), shm::Access::kReadWrite)
          .ok());
  EXPECT_NE(fallocate(received[0].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  EXPECT_EQ(code_of(client.call("channel_mapped", {{"channel", reply["channel"]}})),
            "INVALID_ARGUMENT")
      << "twice";
  EXPECT_EQ(code_of(client.call("open_channel", {{"notification_slots", 32}})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(client.call("open_channel")), "OK") << "a later one has none by default";
  EXPECT_EQ(code_of(client.call("close_channel", {{"channel", reply["channel"]}})), "OK");
  EXPECT_EQ(words->state.load(), static_cast<uint32_t>(shm::ChannelState::kClosed));
  EXPECT_EQ(code_of(client.call("close_channel", {{"channel", reply["channel"]}})),
            "INVALID_ARGUMENT");
}

TEST(Channels, SizesAndNumbersAreLimited) {
  EngineHost engine([](engine::Config* config) {
    config->limits.channels_per_client = 2;
    config->limits.submission_slots = 1024;
  });
  RawClient client(engine.socket_path());
  client.attach("a");
  EXPECT_EQ(code_of(client.call("open_channel", {{"submission_slots", 100}})), "INVALID_ARGUMENT");
  const json large = client.call("open_channel", {{"submission_slots", 2048}});
  EXPECT_EQ(code_of(large), "NO_RESOURCES");
  EXPECT_TRUE(mentions(large, "limits.submission_slots") && mentions(large, "1024")) << large;
  client.channel();
  client.channel();
  const json third = client.call("open_channel");
  EXPECT_EQ(code_of(third), "NO_RESOURCES");
  EXPECT_TRUE(mentions(third, "limits.channels_per_client") && mentions(third, "2 in use"))
      << third;
}

TEST(Channels, OneThatIsSealedByItsClientIsRefusedAndGone) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  Descriptors received;
  const json reply = client.call("open_channel", json::object(), {}, &received);
  ASSERT_EQ(fcntl(received[0].get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  EXPECT_EQ(code_of(client.call("channel_mapped", {{"channel", reply["channel"]}})),
            "INVALID_ARGUMENT");
  EXPECT_EQ(client.channel()->number, reply["channel"].get<uint32_t>())
      << "its number is free again";
}

TEST(Regions, AreRegisteredWithTheRightsOfTheirDescriptorAndFreed) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  client.channel();
  const shm::UniqueFd memory = sealed_memory(16 * kPage);
  const uint64_t region = client.region(memory.get(), 16 * kPage);
  Descriptors readable;
  readable.emplace_back(
      open(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), O_RDONLY | O_CLOEXEC));
  const json reply =
      client.call("register_region", {{"offset", kPage}, {"length", kPage}}, std::move(readable));
  EXPECT_EQ(reply["writable"], false) << reply;
  auto clients = clients_in_stats(engine);
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].regions, 2u);
  EXPECT_EQ(clients[0].registered_bytes, 17 * kPage);
  EXPECT_EQ(code_of(client.call("free_region", {{"handle", region}})), "OK");
  EXPECT_EQ(code_of(client.call("free_region", {{"handle", region}})), "STALE");
  EXPECT_EQ(code_of(client.call("free_region", {{"handle", reply["handle"]}})), "OK");
  client.call("transports");
  clients = clients_in_stats(engine);
  EXPECT_EQ(clients[0].regions, 0u);
  EXPECT_EQ(clients[0].registered_bytes, 0u);
}

TEST(Regions, DescriptorsThatCannotBeTrustedAreRefusedWithTheReason) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  const auto refused = [&](shm::UniqueFd fd, uint64_t offset, uint64_t length) {
    Descriptors memory;
    memory.push_back(std::move(fd));
    return client.call("register_region", {{"offset", offset}, {"length", length}},
                       std::move(memory));
  };
  shm::UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fallocate(unsealed.get(), 0, 0, kPage), 0);
  EXPECT_TRUE(mentions(refused(std::move(unsealed), 0, kPage), "F_SEAL_SHRINK"));
  shm::UniqueFd holed = sealed_memory(2 * kPage);
  ASSERT_EQ(fallocate(holed.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  EXPECT_TRUE(mentions(refused(std::move(holed), 0, 2 * kPage), "fallocate"));
  EXPECT_TRUE(mentions(refused(sealed_memory(kPage), 0, 0), "at least one page"));
  EXPECT_EQ(code_of(refused(sealed_memory(kPage), 0, 2 * kPage)), "OUT_OF_RANGE");
  EXPECT_EQ(code_of(refused(sealed_memory(kPage), UINT64_MAX - kPage + 1, kPage)), "OUT_OF_RANGE");
  EXPECT_EQ(code_of(refused(sealed_memory(kPage), 1, kPage)), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(refused(shm::UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), 0, kPage)),
            "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(refused(pidfd_of(getpid()), 0, kPage)), "INVALID_ARGUMENT");
}

TEST(Regions, QuotaAndCountNameKeyLimitAndUseAndAreGivenBack) {
  EngineHost engine([](engine::Config* config) {
    config->limits.registered_bytes_per_client = 4 * kPage;
    config->limits.regions_per_client = 3;
  });
  RawClient client(engine.socket_path());
  client.attach("a");
  const shm::UniqueFd memory = sealed_memory(4 * kPage);
  const auto ask = [&](uint64_t length) {
    Descriptors descriptors;
    descriptors.push_back(duplicate(memory.get()));
    return client.call("register_region", {{"offset", 0}, {"length", length}},
                       std::move(descriptors));
  };
  const uint64_t region = client.region(memory.get(), 3 * kPage);
  const json over = ask(2 * kPage);
  EXPECT_EQ(code_of(over), "NO_RESOURCES");
  EXPECT_TRUE(mentions(over, "limits.registered_bytes_per_client") && mentions(over, "16384") &&
              mentions(over, "12288 in use"))
      << over;
  EXPECT_EQ(code_of(client.call("free_region", {{"handle", region}})), "OK");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(code_of(ask(kPage)), "OK");
  const json many = ask(kPage);
  EXPECT_EQ(code_of(many), "NO_RESOURCES");
  EXPECT_TRUE(mentions(many, "limits.regions_per_client") && mentions(many, "3 in use")) << many;
}

TEST(Layouts, AreRefusedFreedAndHoldTheirRegions) {
  EngineHost engine([](engine::Config* config) { config->limits.layouts_per_client = 2; });
  RawClient client(engine.socket_path());
  client.attach("a");
  client.channel();
  const shm::UniqueFd memory = sealed_memory(4 * kPage);
  const uint64_t region = client.region(memory.get(), 4 * kPage);
  const uint64_t layout = client.layout(region, 8);
  const json needed = client.call("free_region", {{"handle", region}});
  EXPECT_EQ(code_of(needed), "NOT_PERMITTED");
  EXPECT_TRUE(mentions(needed, std::to_string(layout))) << needed;
  client.layout(region, 8, kPage);
  const json parts = json::array({json::array({region, 0, 8 * kBlockBytes})});
  const json many =
      client.call("register_layout", {{"geometry", block_geometry(8)}, {"parts", parts}});
  EXPECT_EQ(code_of(many), "NO_RESOURCES");
  EXPECT_TRUE(mentions(many, "limits.layouts_per_client")) << many;
  EXPECT_EQ(code_of(client.call("free_layout", {{"handle", layout}})), "OK");
  EXPECT_EQ(code_of(client.call("free_layout", {{"handle", region}})), "INVALID_ARGUMENT");
  const json outside = json::array({json::array({region, 4 * kPage - 1, 8 * kBlockBytes})});
  EXPECT_EQ(code_of(client.call("register_layout",
                                {{"geometry", block_geometry(8)}, {"parts", outside}})),
            "OUT_OF_RANGE");
  json geometry = block_geometry(8);
  geometry["outer_dim"] = 9;
  EXPECT_EQ(code_of(client.call("register_layout", {{"geometry", geometry}, {"parts", parts}})),
            "INVALID_ARGUMENT");
}

json list_geometry(uint32_t entries) {
  json geometry = block_geometry(entries);
  geometry["kind"] = 4;
  for (const char* key : {"num_layers", "outer_dim", "page_size", "inner_dim"}) geometry[key] = 0;
  return geometry;
}

TEST(Layouts, TheirPartsTogetherAreLimitedAndGivenBack) {
  EngineHost engine([](engine::Config* config) { config->limits.layout_parts_per_client = 10; });
  RawClient client(engine.socket_path());
  client.attach("a");
  const shm::UniqueFd memory = sealed_memory(kPage);
  const uint64_t region = client.region(memory.get(), kPage);
  const auto list = [&](uint32_t entries) {
    json parts = json::array();
    for (uint32_t i = 0; i < entries; ++i) parts.push_back({region, i * 64, 64});
    return client.call("register_layout", {{"geometry", list_geometry(entries)}, {"parts", parts}});
  };
  const json first = list(6);
  EXPECT_EQ(code_of(first), "OK") << first;
  const json more = list(5);
  EXPECT_EQ(code_of(more), "NO_RESOURCES");
  EXPECT_TRUE(mentions(more, "limits.layout_parts_per_client") && mentions(more, "6 in use"))
      << more;
  EXPECT_EQ(code_of(list(4)), "OK");
  EXPECT_EQ(code_of(client.call("free_layout", {{"handle", first["handle"]}})), "OK");
  EXPECT_EQ(code_of(list(6)), "OK");
}

TEST(Layouts, ALongOneIsReadElsewhereAndWhatFollowsItWaits) {
  EngineHost engine([](engine::Config* config) { config->limits.layouts_per_client = 1; });
  RawClient client(engine.socket_path());
  client.attach("a");
  const shm::UniqueFd memory = sealed_memory(kPage);
  const uint64_t region = client.region(memory.get(), kPage);
  json parts = json::array();
  for (uint64_t i = 0; i < 50'000; ++i) parts.push_back({region, 0, 64});
  const uint64_t large =
      client.send("register_layout", {{"geometry", list_geometry(50'000)}, {"parts", parts}});
  const uint64_t small = client.send(
      "register_layout",
      {{"geometry", list_geometry(1)}, {"parts", json::array({json::array({region, 0, 64})})}});
  EXPECT_EQ(code_of(client.reply(large)), "OK");
  EXPECT_EQ(code_of(client.reply(small)), "NO_RESOURCES");
}

TEST(Layouts, ThousandsOfPartsTravelInAMemfd) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  const shm::UniqueFd memory = sealed_memory(1024 * kPage);
  const uint64_t region = client.region(memory.get(), 1024 * kPage);
  json parts = json::array();
  for (uint64_t i = 0; i < 20'000; ++i) parts.push_back({region, i * 200, 100 + i % 7});
  EXPECT_EQ(code_of(client.call("register_layout",
                                {{"geometry", list_geometry(20'000)}, {"parts", parts}})),
            "OK");
}

TEST(Transports, AreListedWithTheReasonWhyOneIsNotThere) {
  EngineHost engine;
  RawClient client(engine.socket_path());
  client.attach("a");
  const json reply = client.call("transports");
  std::set<std::string> available;
  for (const json& transport : reply["transports"]) {
    if (transport["available"] == true) {
      available.insert(transport["name"]);
    } else {
      EXPECT_NE(transport["reason"], "") << transport;
    }
  }
  EXPECT_EQ(available, std::set<std::string>{"memory"});
  EXPECT_EQ(reply["transports"].size(), 4u);
}

}  // namespace
}  // namespace wherry::test
