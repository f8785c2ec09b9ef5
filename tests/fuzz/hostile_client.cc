#include "tests/fuzz/hostile_client.h"

#include <array>

#include "shm/segment.h"

namespace wherry::fuzz {
namespace {

using test::json;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargeBytes = uint64_t{1} << 20;
constexpr uint64_t kHugeBytes = uint64_t{2} << 20;

}  // namespace

HostileClient::HostileClient(const std::string& socket_path, const std::string& name, uint64_t seed,
                             Findings* findings)
    : path_(socket_path),
      dice_(seed),
      findings_(findings),
      client_(socket_path),
      reckless_(dice_.one_in(2)) {
  EXPECT_EQ(test::code_of(client_.attach(name)), "OK");
  const uint32_t slots = dice_.of(std::to_array({8u, 16u, 64u, 512u}));
  rings_ = client_.channel({{"submission_slots", slots}, {"notification_slots", 64}});
  const auto add_memory = [this](shm::UniqueFd fd, uint64_t bytes) {
    memory_.push_back(std::move(fd));
    memory_bytes_.push_back(bytes);
    return client_.region(memory_.back().get(), bytes);
  };
  for (int i = 0; i < 2; ++i) {
    const uint64_t region = add_memory(test::sealed_memory(4 * kPage), 4 * kPage);
    handles_.push_back(region);
    handles_.push_back(client_.layout(region, 128));
    large_.push_back(client_.block_layout(add_memory(test::sealed_memory(kLargeBytes), kLargeBytes),
                                          kLargeBytes));
  }
  Result<shm::UniqueFd> huge = shm::create_memory("hostile", kHugeBytes, kHugeBytes);
  if (huge.ok()) {
    large_.push_back(client_.block_layout(add_memory(std::move(*huge), kHugeBytes), kLargeBytes));
  }
  const auto layout = [this](int tier) {
    return client_.call(
        "find_layout", {{"instance", "good"}, {"rank", 0}, {"tier", tier}, {"timeout_ms", 60'000}});
  };
  const json good = client_.call("find_client", {{"instance", "good"}, {"rank", 0}});
  for (const json& found : {layout(1), layout(2), good}) {
    EXPECT_EQ(test::code_of(found), "OK") << found;
    handles_.push_back(found.value("handle", uint64_t{0}));
  }
  handles_.push_back(large_.front());
  for (int i = 0; i < 3; ++i) handles_.push_back(dice_.number());
}

void HostileClient::act() {
  if (ended_) return;
  patience_ = 100;
  switch (dice_.below(8)) {
    case 0:
    case 1:
      act_on_socket();
      break;
    case 2:
      act_on_descriptors();
      break;
    default:
      act_on_rings();
      break;
  }
  if (dice_.one_in(2)) listen();
}

void HostileClient::listen() {
  while (!ended_) {
    Result<std::optional<shm::ControlMessage>> message = client_.socket().receive();
    ended_ = !message.ok();
    if (ended_ || !message->has_value()) return;
    const json object = json::parse((*message)->text);
    if (object["type"] == "reply") {
      ++(*findings_)["reply " + test::code_of(object)];
    } else if (object["event"] == "closing") {
      ++(*findings_)["end " + object.value("reason", "")];
    }
  }
}

}  // namespace wherry::fuzz
