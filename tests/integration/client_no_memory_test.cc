// Every call of a Client when the calling thread runs out of memory, at each allocation in turn: no
// exception leaves the library, and nothing is left behind at the engine or in the client.
#include "tests/support/client_world.h"
#include "tests/support/scarce_memory.h"

namespace wherry::test {
namespace {

class ClientNoMemory : public ClientWorld, public ::testing::WithParamInterface<uint64_t> {
 protected:
  // Anything left behind soon hits a limit.
  ClientNoMemory()
      : ClientWorld([](engine::Config* config) {
          config->limits.regions_per_client = 3;
          config->limits.layouts_per_client = 3;
          config->limits.found_per_client = 3;
          config->limits.channels_per_client = 3;
          config->limits.clients = 3;
        }) {}

  // Calls it, with the first allocation failing, then the second, and so on, until none fails.
  // What succeeds is undone.
  template <typename Call, typename Undo>
  void sweep(const std::string& what, const Call& call, const Undo& undo) {
    SCOPED_TRACE(what);
    uint32_t refused = 0;
    for (uint64_t first = 0;; ++first) {
      scarcity_begin(first, GetParam());
      decltype(call()) result = Status(Code::kInternal, "");
      {
        Scarcity scarce;
        result = call();
      }
      if (status_of(result).ok()) undo(result);
      if (!scarcity_hit()) {
        EXPECT_TRUE(status_of(result).ok()) << status_of(result).to_string();
        break;
      }
      if (status_of(result).ok()) continue;
      ++refused;
      EXPECT_EQ(status_of(result).code(), Code::kNoResources)
          << "allocation " << first << ": " << status_of(result).to_string();
      // It was memory, and no limit of the engine.
      EXPECT_EQ(status_of(result).message().find("limits."), std::string::npos)
          << status_of(result).to_string();
    }
    EXPECT_GT(refused, 0u) << "it allocates nothing?";
  }
  template <typename T>
  static const Status& status_of(const Result<T>& result) {
    return result.status();
  }
  static const Status& status_of(const Status& status) { return status; }
  static void nothing(const Status&) {}
};
INSTANTIATE_TEST_SUITE_P(OneOrMany, ClientNoMemory, ::testing::Values(1, 1000));

TEST_P(ClientNoMemory, AttachingLeavesNoSessionBehind) {
  AttachOptions options;
  options.instance = "an.instance.whose.name.is.longer.than.a.short.string";
  options.run_dir = engine_->run_dir();
  options.wait_ms = kHangMs;
  options.channel.descriptor = true;
  sweep(
      "attach", [&] { return Client::attach(options); },
      [](Result<Client>& client) { EXPECT_TRUE(client->create_region(4096).ok()); });
}

TEST_P(ClientNoMemory, CallsAboutMemoryAndLayoutsLeaveNothingBehind) {
  Client client = attach("solo");
  Client other = attach("other");
  const Region region = make_region(client, 1 << 16);
  const LayoutSpec spec = fully_contiguous(region.handle, 0, small_geometry());
  const LayoutHandle layout = *client.register_layout(spec);
  const std::vector<InstanceId> to = {"other", std::string(60, 'x')};
  sweep(
      "create_region", [&] { return client.create_region(4096); },
      [&](Result<Region>& made) { EXPECT_TRUE(client.free_region(made->handle).ok()); });
  sweep(
      "register_layout", [&] { return client.register_layout(spec); },
      [&](Result<LayoutHandle>& made) { EXPECT_TRUE(client.free_layout(*made).ok()); });
  sweep(
      "publish", [&] { return client.publish(layout, Tier::kG2, Rights::kRead, to); },
      [&](const Status&) { EXPECT_TRUE(client.unpublish(layout).ok()); });
  ASSERT_TRUE(client.publish(layout, Tier::kG2, Rights::kRead, to).ok());
  sweep(
      "find_layout", [&] { return other.find_layout("solo", 0, Tier::kG2); },
      [&](Result<FoundLayout>& found) { EXPECT_TRUE(other.free_layout(found->handle).ok()); });
  sweep(
      "find_client", [&] { return other.find_client("solo", 0); },
      [](Result<ClientHandle>& found) { EXPECT_NE(found->value, 0u); });
  sweep(
      "transports", [&] { return client.transports(); },
      [](Result<std::vector<TransportInfo>>& list) { EXPECT_FALSE(list->empty()); });
}

TEST_P(ClientNoMemory, CallsThatFreeCanBeRepeated) {
  Client client = attach("solo");
  const Region region = make_region(client, 1 << 16);
  const LayoutSpec spec = fully_contiguous(region.handle, 0, small_geometry());
  LayoutHandle layout = *client.register_layout(spec);
  const auto publish_again = [&](const Status&) {
    EXPECT_TRUE(client.publish(layout, Tier::kG2).ok());
  };
  publish_again({});
  sweep(
      "unpublish", [&] { return client.unpublish(layout); }, publish_again);
  sweep(
      "free_layout", [&] { return client.free_layout(layout); },
      [&](const Status&) { layout = *client.register_layout(spec); });
  Region extra = make_region(client, 4096);
  sweep(
      "free_region", [&] { return client.free_region(extra.handle); },
      [&](const Status&) { extra = make_region(client, 4096); });
}

TEST_P(ClientNoMemory, TransfersAreRefusedOrEndAsTheyShould) {
  Client client = attach("solo");
  Client other = attach("other");
  const Placed from = place(client, LayoutKind::kFullyContiguous);
  const Placed to = place(client, LayoutKind::kFullyContiguous);
  from.fill_all(1);
  Image after(to);
  for (uint32_t i = 0; i < 8; ++i) after.block(i, i, 1);
  const std::vector<BlockId> blocks = ids(0, 8);
  sweep(
      "execute_local_transfer and wait",
      [&]() -> Result<Completion> {
        Result<TransferCompleteNotification> request =
            client.execute_local_transfer(from.layout, to.layout, blocks, blocks);
        if (!request.ok()) return request.status();
        return request->wait();
      },
      [](Result<Completion>& done) { EXPECT_TRUE(done->ok()) << done->to_string(); });
  EXPECT_TRUE(after.holds());
  const std::vector<RangeOp> ops(5, {from.region.handle, 0, to.region.handle, 0, 61});
  sweep(
      "submit", [&] { return client.submit(ops); }, nothing);
  const std::vector<RangeOp> overlapping(5, {from.region.handle, 0, from.region.handle, 5, 61});
  for (uint64_t first = 0; first < 40; ++first) {
    scarcity_begin(first, GetParam());
    Scarcity scarce;
    const Status refused = client.submit(overlapping);
    EXPECT_TRUE(refused.code() == Code::kOverlap || refused.code() == Code::kNoResources);
  }
  sweep(
      "notify",
      [&]() -> Status {
        Result<TransferCompleteNotification> request =
            client.notify("other", 0, std::string_view("longer than a short string would be"));
        return request.ok() ? request->wait().status() : request.status();
      },
      [&](const Status&) { EXPECT_TRUE(other.poll_notifications().ok()); });
}

TEST_P(ClientNoMemory, OpeningAChannelLeavesNoneBehind) {
  Client client = attach("solo");
  ChannelOptions options;
  options.descriptor = true;
  // One that is given up counts until it has drained, so each gets a client's worth of room.
  for (uint64_t first = 0;; ++first) {
    Result<Channel> channel = Status(Code::kInternal, "");
    scarcity_begin(first, GetParam());
    do {
      Scarcity scarce;
      channel = client.open_channel(options);
    } while (channel.status().message().find("limits.") != std::string::npos);
    if (!scarcity_hit()) {
      EXPECT_TRUE(channel.ok()) << channel.status().to_string();
      break;
    }
    EXPECT_TRUE(channel.ok() || channel.code() == Code::kNoResources);
  }
  for (int i = 0; i < 2; ++i) {
    std::vector<Channel> both;
    while (both.size() < 2) {
      Result<Channel> channel = client.open_channel(options);
      if (channel.ok()) both.push_back(*channel);
    }
  }
}

}  // namespace
}  // namespace wherry::test
