// Publishing and finding over a real socket: rights, waiting, and taking back.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kTier = 2;

class Sharing : public ::testing::Test {
 protected:
  Sharing() {
    owner_.attach("prefill");
    finder_.attach("decode");
    owner_.channel();
    finder_.channel();
    region_ = owner_.region(memory_.get(), 4 * kPage);
    layout_ = owner_.layout(region_, 8);
  }

  json publish(const std::string& rights = "read", const json& to = "*", uint32_t tier = kTier) {
    return owner_.call("publish",
                       {{"layout", layout_}, {"tier", tier}, {"rights", rights}, {"to", to}});
  }
  static json where(uint32_t timeout_ms = 0, uint32_t tier = kTier) {
    return {{"instance", "prefill"}, {"rank", 0}, {"tier", tier}, {"timeout_ms", timeout_ms}};
  }

  EngineHost engine_;
  RawClient owner_{engine_.socket_path()};
  RawClient finder_{engine_.socket_path()};
  shm::UniqueFd memory_ = sealed_memory(4 * kPage);
  uint64_t region_ = 0;
  uint64_t layout_ = 0;
};

TEST_F(Sharing, APublishedLayoutIsFoundWithItsGeometryAndRights) {
  EXPECT_EQ(code_of(publish("read_write")), "OK");
  const json found = finder_.call("find_layout", where());
  EXPECT_EQ(code_of(found), "OK") << found;
  EXPECT_EQ(found["geometry"], block_geometry(8));
  EXPECT_EQ(found["parts"], json::array({8 * kBlockBytes}));
  EXPECT_EQ(found["rights"], "read_write");
  EXPECT_NE(found["incarnation"], 0);
  EXPECT_EQ(code_of(finder_.call("release_found", {{"handle", found["handle"]}})), "OK");
  EXPECT_EQ(code_of(finder_.call("release_found", {{"handle", found["handle"]}})), "STALE");
}

TEST_F(Sharing, WhatIsNotPublishedIsUnknownAndSaysHowFarItGot) {
  const json nothing = finder_.call("find_layout", where());
  EXPECT_EQ(code_of(nothing), "UNKNOWN_INSTANCE");
  EXPECT_NE(nothing.value("message", "").find("published nothing"), std::string::npos) << nothing;
  json nobody_there = where();
  nobody_there["instance"] = "nobody";
  const json nobody = finder_.call("find_layout", nobody_there);
  EXPECT_EQ(code_of(nobody), "UNKNOWN_INSTANCE");
  EXPECT_NE(nobody.value("message", "").find("no such client"), std::string::npos) << nobody;
  const json late = finder_.call("find_layout", where(1));
  EXPECT_EQ(code_of(late), "UNKNOWN_INSTANCE");
  EXPECT_NE(late.value("message", "").find("1 ms"), std::string::npos) << late;
}

TEST_F(Sharing, AFindWaitsUntilTheLayoutIsPublished) {
  const uint64_t waiting = finder_.send("find_layout", where(60'000));
  EXPECT_EQ(code_of(finder_.call("transports")), "OK") << "later requests overtake it";
  EXPECT_FALSE(finder_.answered(waiting));
  EXPECT_EQ(code_of(publish()), "OK");
  EXPECT_EQ(code_of(finder_.reply(waiting)), "OK");
}

TEST_F(Sharing, OnlyNamedInstancesGetIt) {
  EXPECT_EQ(code_of(publish("read", {"eval", "other"})), "OK");
  EXPECT_EQ(code_of(finder_.call("find_layout", where())), "NOT_PERMITTED");
  RawClient eval(engine_.socket_path());
  eval.attach("eval");
  EXPECT_EQ(code_of(eval.call("find_layout", where())), "OK");
}

TEST_F(Sharing, AReadOnlyRegionIsNotPublishedForWriting) {
  shm::UniqueFd readable(
      open(("/proc/self/fd/" + std::to_string(memory_.get())).c_str(), O_RDONLY | O_CLOEXEC));
  const uint64_t region = owner_.region(readable.get(), kPage);
  layout_ = owner_.layout(region, 8);
  EXPECT_EQ(code_of(publish("read_write")), "NOT_PERMITTED");
  EXPECT_EQ(code_of(publish("read")), "OK");
  EXPECT_EQ(finder_.call("find_layout", where())["rights"], "read");
}

TEST_F(Sharing, APlaceIsTakenUntilItIsUnpublished) {
  EXPECT_EQ(code_of(publish()), "OK");
  EXPECT_EQ(code_of(publish()), "ALREADY_EXISTS");
  EXPECT_EQ(code_of(publish("read", "*", 1)), "OK") << "another tier";
  EXPECT_EQ(code_of(owner_.call("unpublish", {{"layout", layout_}})), "OK");
  EXPECT_EQ(code_of(owner_.call("unpublish", {{"layout", layout_}})), "INVALID_ARGUMENT");
  EXPECT_EQ(code_of(finder_.call("find_layout", where())), "UNKNOWN_INSTANCE");
  EXPECT_EQ(code_of(finder_.call("find_layout", where(0, 1))), "UNKNOWN_INSTANCE");
  EXPECT_EQ(code_of(publish()), "OK");
}

TEST_F(Sharing, FindersLearnThatALayoutWasTakenBack) {
  publish();
  const uint64_t first = finder_.call("find_layout", where())["handle"];
  const uint64_t second = finder_.call("find_layout", where())["handle"];
  EXPECT_NE(first, second);
  EXPECT_EQ(code_of(owner_.call("unpublish", {{"layout", layout_}})), "OK");
  const json stale = finder_.event("stale");
  EXPECT_EQ(stale["handles"], json::array({first, second}));
  EXPECT_EQ(code_of(finder_.call("release_found", {{"handle", first}})), "STALE");
}

TEST_F(Sharing, FreeingALayoutTakesItsPublicationsBack) {
  publish();
  const uint64_t found = finder_.call("find_layout", where())["handle"];
  EXPECT_EQ(code_of(owner_.call("free_layout", {{"handle", layout_}})), "OK");
  EXPECT_EQ(finder_.event("stale")["handles"], json::array({found}));
  EXPECT_EQ(code_of(owner_.call("free_region", {{"handle", region_}})), "OK");
}

TEST_F(Sharing, TheEndOfAnOwnerMakesWhatWasFoundStaleAndNothingOfItIsLeft) {
  publish();
  const uint64_t layout = finder_.call("find_layout", where())["handle"];
  const uint64_t client =
      finder_.call("find_client", {{"instance", "prefill"}, {"rank", 0}})["handle"];
  owner_.close();
  std::vector<uint64_t> stale;
  while (stale.size() < 2) {
    const json event = finder_.event("stale");
    ASSERT_NE(event, nullptr);
    for (const json& handle : event["handles"]) stale.push_back(handle);
  }
  EXPECT_EQ(stale, (std::vector<uint64_t>{layout, client}));
  EXPECT_EQ(code_of(finder_.call("find_client", {{"instance", "prefill"}, {"rank", 0}})),
            "UNKNOWN_INSTANCE");
  RawClient next(engine_.socket_path());
  while (code_of(next.attach("prefill")) == "ALREADY_EXISTS") {
  }
}

TEST_F(Sharing, AFinderThatEndsLeavesTheOwnerFreeToTakeBack) {
  publish();
  finder_.call("find_layout", where());
  finder_.close();
  EXPECT_EQ(code_of(owner_.call("free_layout", {{"handle", layout_}})), "OK");
  EXPECT_EQ(code_of(owner_.call("free_region", {{"handle", region_}})), "OK");
}

size_t pidfds() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    count += target.find("pidfd") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST_F(Sharing, FindsThatWaitUnderOneIdAreToldApart) {
  finder_.call("transports");  // by now the engine has closed what went with earlier replies
  const size_t before = pidfds();
  {
    RawClient client(engine_.socket_path());
    client.attach("third");
    const auto find = [&](uint32_t timeout_ms) {
      json message = where(timeout_ms);
      for (const auto& [key, value] :
           {std::pair<const char*, json>{"type", "find_layout"}, {"version", 1}, {"id", 77}}) {
        message[key] = value;
      }
      client.send_text(message.dump());
    };
    find(60'000'000);
    find(1);
    EXPECT_EQ(code_of(client.reply(77)), "UNKNOWN_INSTANCE") << "the shorter one";
    EXPECT_EQ(code_of(client.call("detach")), "OK");
    EXPECT_EQ(code_of(client.reply(77)), "ABORTED") << "the longer one";
  }
  // A timer that is left over would keep the session, and its pidfd, for hours.
  for (int i = 0; i < 10'000 && pidfds() != before; ++i) finder_.call("transports");
  EXPECT_EQ(pidfds(), before);
}

TEST_F(Sharing, AFindThatWaitsEndsWithItsSession) {
  const uint64_t waiting = finder_.send("find_layout", where(60'000));
  EXPECT_EQ(code_of(finder_.call("detach")), "OK");
  EXPECT_EQ(code_of(finder_.reply(waiting)), "ABORTED");
  EXPECT_EQ(code_of(publish()), "OK");
}

TEST_F(Sharing, HandlesFoundAreLimited) {
  EngineHost engine([](engine::Config* config) { config->limits.found_per_client = 1; });
  RawClient client(engine.socket_path());
  client.attach("a");
  const json self = {{"instance", "a"}, {"rank", 0}};
  const json found = client.call("find_client", self);
  EXPECT_EQ(code_of(found), "OK");
  const json more = client.call("find_client", self);
  EXPECT_EQ(code_of(more), "NO_RESOURCES");
  EXPECT_NE(more.value("message", "").find("limits.found_per_client"), std::string::npos) << more;
  EXPECT_EQ(code_of(client.call("release_found", {{"handle", found["handle"]}})), "OK");
  EXPECT_EQ(code_of(client.call("find_client", self)), "OK");
}

}  // namespace
}  // namespace wherry::test
