// Taking memory back while requests use it: the answer comes after the last use, not before.
#include "shm/stats_reader.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kBlock = uint64_t{8} << 20;  // many turns of the poller

// The poller is driven by the test, so a transfer is under way for exactly as long as it wants.
class Revocation : public ::testing::Test {
 protected:
  Revocation() {
    attach(owner_, "prefill");
    attach(finder_, "decode");
    source_region_ = owner_.region(source_.get(), kBlock);
    source_layout_ = owner_.block_layout(source_region_, kBlock);
    owner_rings_ = channel(owner_);
    destination_region_ = finder_.region(destination_.get(), kBlock);
    destination_layout_ = finder_.block_layout(destination_region_, kBlock);
    finder_rings_ = channel(finder_);
    EXPECT_EQ(code_of(finish(owner_, owner_.send("publish", {{"layout", source_layout_},
                                                             {"tier", 2},
                                                             {"rights", "read"},
                                                             {"to", "*"}}))),
              "OK");
    const json found = finish(
        finder_,
        finder_.send("find_layout",
                     {{"instance", "prefill"}, {"rank", 0}, {"tier", 2}, {"timeout_ms", 0}}));
    EXPECT_EQ(code_of(found), "OK") << found;
    found_ = found["handle"];
  }

  static void attach(RawClient& client, const std::string& instance) {
    EXPECT_EQ(code_of(client.attach(instance)), "OK");
  }

  template <typename Done>
  void turns_until(const Done& done) {
    while (!done()) engine_->poller(0)->poll_once();
  }

  // The reply to a request that needs the poller to turn.
  json finish(RawClient& client, uint64_t id) {
    turns_until([&] { return client.answered(id); });
    return client.reply(id);
  }

  std::unique_ptr<RawRings> channel(RawClient& client) {
    // open, map and say so need no poller; the last reply does.
    std::unique_ptr<RawRings> rings;
    std::atomic<bool> done{false};
    std::thread other([&] {
      rings = client.channel();
      done = true;
    });
    turns_until([&] { return done.load(); });
    other.join();
    return rings;
  }

  // A transfer from what was found into the finder's own layout, begun and far from its end.
  void begin_transfer() {
    finder_rings_->transfer(found_, destination_layout_);
    for (int i = 0; i < 3; ++i) engine_->poller(0)->poll_once();
    EXPECT_FALSE(finder_rings_->reap().has_value());
  }

  // Lets the control thread and the poller go on for a while, but the transfer not end.
  void a_few_turns(RawClient& client) {
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(code_of(client.call("transports")), "OK");
      engine_->poller(0)->poll_once();
    }
    EXPECT_FALSE(finder_rings_->completions.ready()) << "the transfer was to take longer";
  }

  shm::CompletionHead completion(RawRings& rings) {
    turns_until([&] { return rings.completions.ready(); });
    return *rings.reap();
  }

  EngineHost engine_{
      [](engine::Config* config) { config->pollers[0].idle = engine::IdleStrategy::kExternal; }};
  RawClient owner_{engine_.socket_path()};
  RawClient finder_{engine_.socket_path()};
  shm::UniqueFd source_ = sealed_memory(kBlock);
  shm::UniqueFd destination_ = sealed_memory(kBlock);
  uint64_t source_region_ = 0;
  uint64_t source_layout_ = 0;
  uint64_t destination_region_ = 0;
  uint64_t destination_layout_ = 0;
  uint64_t found_ = 0;
  std::unique_ptr<RawRings> owner_rings_;
  std::unique_ptr<RawRings> finder_rings_;
};

TEST_F(Revocation, AnUnpublishIsAnsweredAfterTheFindersLastUse) {
  begin_transfer();
  const uint64_t unpublish = owner_.send("unpublish", {{"layout", source_layout_}});
  a_few_turns(owner_);
  EXPECT_FALSE(owner_.answered(unpublish));
  EXPECT_EQ(finder_.event("stale")["handles"], json::array({found_}));
  finder_rings_->transfer(found_, destination_layout_);
  const shm::CompletionHead first = completion(*finder_rings_);
  const shm::CompletionHead second = completion(*finder_rings_);
  const shm::CompletionHead& old_use = first.request_id == 1 ? first : second;
  const shm::CompletionHead& new_use = first.request_id == 1 ? second : first;
  EXPECT_EQ(code_of(old_use), "OK") << "what was begun ends well";
  EXPECT_EQ(code_of(new_use), "STALE");
  EXPECT_EQ(code_of(finish(owner_, unpublish)), "OK");
}

TEST_F(Revocation, AnOwnersOwnTransfersDoNotPutItsUnpublishOff) {
  const uint64_t other =
      finish(owner_,
             owner_.send("register_layout",
                         {{"geometry", block_geometry(1)},
                          {"parts", json::array({json::array({source_region_, 0, kBlockBytes})})}}))
          .value("handle", uint64_t{0});
  EXPECT_NE(other, 0u);
  const shm::UniqueFd target = sealed_memory(kBlock);
  Descriptors descriptors;
  descriptors.push_back(duplicate(target.get()));
  const uint64_t region =
      finish(owner_, owner_.send("register_region", {{"offset", 0}, {"length", kBlock}},
                                 std::move(descriptors)))["handle"];
  json geometry = block_geometry(1);
  geometry["outer_dim"] = 1;
  geometry["page_size"] = kBlock / 16;
  const uint64_t layout = finish(
      owner_, owner_.send("register_layout",
                          {{"geometry", geometry},
                           {"parts", json::array({json::array({region, 0, kBlock})})}}))["handle"];
  owner_rings_->transfer(source_layout_, layout);
  for (int i = 0; i < 3; ++i) engine_->poller(0)->poll_once();
  const uint64_t unpublish = owner_.send("unpublish", {{"layout", source_layout_}});
  for (int i = 0; i < 20 && !owner_.answered(unpublish); ++i) {
    EXPECT_EQ(code_of(finder_.call("transports")), "OK");
    engine_->poller(0)->poll_once();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(owner_.answered(unpublish));
  EXPECT_FALSE(owner_rings_->completions.ready()) << "the transfer was to take longer";
  EXPECT_EQ(code_of(completion(*owner_rings_)), "OK");
}

TEST_F(Revocation, AFreedLayoutAndItsRegionWaitForTheLastUse) {
  begin_transfer();
  const uint64_t free_layout = owner_.send("free_layout", {{"handle", source_layout_}});
  a_few_turns(owner_);
  EXPECT_FALSE(owner_.answered(free_layout));
  EXPECT_EQ(code_of(owner_.call("free_region", {{"handle", source_region_}})), "NOT_PERMITTED");
  EXPECT_EQ(code_of(completion(*finder_rings_)), "OK");
  EXPECT_EQ(code_of(finish(owner_, free_layout)), "OK");
  EXPECT_EQ(code_of(finish(owner_, owner_.send("free_region", {{"handle", source_region_}}))),
            "OK");
}

TEST_F(Revocation, TheMemoryOfADeadOwnerStaysUntilTheLastUseAndItsNameToo) {
  begin_transfer();
  owner_.close();
  while (finder_.event("stale")["handles"] != json::array({found_})) {
  }
  a_few_turns(finder_);
  RawClient next(engine_.socket_path());
  EXPECT_EQ(code_of(next.attach("prefill")), "ALREADY_EXISTS");
  EXPECT_EQ(code_of(completion(*finder_rings_)), "OK");
  std::string code;
  do {
    engine_->poller(0)->poll_once();
    code = code_of(next.attach("prefill"));
  } while (code == "ALREADY_EXISTS");
  EXPECT_EQ(code, "OK");
}

TEST_F(Revocation, WhatIsTakenBackWhileItIsBeingFoundIsNotGivenOut) {
  // Nothing that needs the poller is answered until it turns.
  const uint64_t layout = finder_.send(
      "find_layout", {{"instance", "prefill"}, {"rank", 0}, {"tier", 2}, {"timeout_ms", 0}});
  const uint64_t client = finder_.send("find_client", {{"instance", "prefill"}, {"rank", 0}});
  EXPECT_EQ(code_of(finder_.call("transports")), "OK") << "both are under way";
  owner_.close();
  for (size_t stale = 0; stale < 3;) stale += finder_.event("stale")["handles"].size();
  EXPECT_EQ(code_of(finish(finder_, layout)), "STALE");
  EXPECT_EQ(code_of(finish(finder_, client)), "STALE");
}

TEST_F(Revocation, AClosedChannelIsAnsweredAfterItHasDrained) {
  begin_transfer();
  const uint64_t close = finder_.send("close_channel", {{"channel", finder_rings_->number}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(code_of(finder_.call("transports")), "OK");
  EXPECT_FALSE(finder_.answered(close));
  EXPECT_EQ(code_of(finish(finder_, close)), "OK");
  EXPECT_TRUE(finder_rings_->completions.ready());
  EXPECT_EQ(finder_rings_->state(), shm::ChannelState::kClosed);
}

}  // namespace
}  // namespace wherry::test
