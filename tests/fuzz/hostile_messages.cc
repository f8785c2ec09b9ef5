// The control socket of a hostile client.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/protocol.h"
#include "tests/fuzz/hostile_client.h"
#include "tests/fuzz/odd_descriptors.h"

namespace wherry::fuzz {

using test::Descriptors;
using test::json;

void HostileClient::act_on_socket() {
  switch (dice_.below(8)) {
    case 0:
    case 1: {
      Descriptors descriptors;
      const json message = likely_message();
      if (message["type"] == "register_region") {
        descriptors = odd_descriptors(1);
        if (dice_.one_in(2)) {
          descriptors.clear();
          descriptors.push_back(test::duplicate(dice_.of(memory_).get()));
        }
      }
      client_.send_text(message.dump(), std::move(descriptors));
      return;
    }
    case 2:
    case 3:
      return send_mutated();
    case 4:
      return send_packet("i" + dice_.bytes(200), odd_descriptors(3));
    case 5:
      if (dice_.one_in(2)) return send_long();
      // One is too many, or nothing is one packet, or this is no text at all.
      return send_packet(dice_.one_in(2) ? dice_.bytes(40) : "i{}", odd_descriptors(30));
    case 6:
      return connect_once_more();
    default:
      if (dice_.one_in(20)) return client_.send_text(R"({"type":"detach","version":1,"id":1})");
      return send_packet("m" + std::string(dice_.below(3), '\0'), odd_descriptors(2));
  }
}

// A message of the protocol, with values that may even fit.
json HostileClient::likely_message() {
  static constexpr const char* kTypes[] = {
      "hello",       "open_channel",  "channel_mapped", "close_channel", "register_region",
      "free_region", "free_layout",   "publish",        "unpublish",     "find_layout",
      "find_client", "release_found", "transports",     "admin",         "register_layout"};
  const std::string type = dice_.of(kTypes);
  const uint64_t handle = dice_.of(handles_);
  json message = {{"type", type},
                  {"version", shm::protocol::kVersion},
                  {"id", dice_.number() | uint64_t{1} << 32}};
  if (type == "hello") message.update(test::RawClient::hello("good", 0));
  if (type == "open_channel") {
    message["submission_slots"] = uint64_t{8} << dice_.below(8);
    message["notification_slots"] = 0;
    message["descriptor"] = dice_.one_in(2);
  }
  // Not its rings: they are for other tricks.
  if (type == "channel_mapped" || type == "close_channel") message["channel"] = 1 + dice_.below(4);
  if (type == "register_region") {
    message["offset"] = 4096 * dice_.below(3);
    message["length"] = 4096 * (1 + dice_.below(2));
  }
  if (type == "register_layout") {
    json geometry = test::block_geometry(1 + static_cast<uint32_t>(dice_.below(8)));
    geometry["kind"] = 1 + dice_.below(4);
    message["geometry"] = geometry;
    json& parts = message["parts"] = json::array();
    for (uint64_t i = 1 + dice_.below(3); i != 0; --i) {
      parts.push_back({dice_.of(handles_), dice_.number(), 128 * (1 + dice_.below(9))});
    }
  }
  for (const char* freed : {"free_region", "free_layout", "release_found"}) {
    if (type == freed) message["handle"] = handle;
  }
  if (type == "publish" || type == "unpublish") message["layout"] = handle;
  if (type == "publish") {
    message["tier"] = 1 + dice_.below(4);
    message["rights"] = dice_.one_in(2) ? "read" : "read_write";
    message["to"] = dice_.one_in(2) ? json("*") : json::array({"good"});
  }
  if (type == "find_layout" || type == "find_client") {
    message["instance"] = "good";
    message["rank"] = dice_.below(2);
  }
  if (type == "find_layout") {
    message["tier"] = 1 + dice_.below(4);
    message["timeout_ms"] = dice_.below(50);
  }
  if (type == "admin") message["command"] = dice_.one_in(2) ? "kill" : "stop";
  return message;
}

json HostileClient::odd_value() {
  switch (dice_.below(10)) {
    case 0:
      return nullptr;
    case 1:
      return dice_.one_in(2);
    case 2:
      return -static_cast<int64_t>(dice_.below(5));
    case 3:
      return 1e300;
    case 4:
      return std::string(dice_.below(300), static_cast<char>(dice_.below(128)));
    case 5:
      return json::array({dice_.number(), json::array({1, json::array()})});
    case 6:
      return json::object({{"a", 1}});
    default:
      return dice_.number();
  }
}

// Keys lost, more keys, other values, other bytes.
void HostileClient::send_mutated() {
  json message = likely_message();
  for (uint64_t i = dice_.below(3); i != UINT64_MAX; --i) {
    auto key = message.begin();
    if (message.empty()) break;
    std::advance(key, static_cast<std::ptrdiff_t>(dice_.below(message.size())));
    if (dice_.one_in(4)) {
      message.erase(key);
    } else {
      *key = odd_value();
    }
  }
  if (dice_.one_in(6)) message["odd"] = odd_value();
  std::string text = message.dump(-1, ' ', false, json::error_handler_t::replace);
  for (uint64_t i = dice_.one_in(3) ? dice_.below(5) : 0; i != 0; --i) {
    text[dice_.below(text.size())] = static_cast<char>(dice_.any());
  }
  if (dice_.one_in(8)) text.resize(dice_.below(text.size()));
  client_.send_text(text, dice_.one_in(3) ? odd_descriptors(2) : Descriptors());
}

void HostileClient::send_packet(const std::string& packet, const Descriptors& descriptors) {
  test::send_packet(client_.socket().fd(), packet, descriptors, MSG_DONTWAIT);
}

// In a memfd that is as it should be, and with what may not be.
void HostileClient::send_long() {
  json message = likely_message();
  message["parts"] = json::array();
  for (uint64_t i = dice_.below(9000); i != 0; --i) message["parts"].push_back({i, 0, 1});
  std::string text = message.dump();
  text += dice_.one_in(2) ? std::string(70'000, ' ') : dice_.bytes(70'000);
  shm::UniqueFd fd(memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  [[maybe_unused]] const ssize_t written = pwrite(fd.get(), text.data(), text.size(), 0);
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  fcntl(fd.get(), F_ADD_SEALS, dice_.one_in(4) ? static_cast<int>(dice_.below(16)) : seals);
  Descriptors descriptors = odd_descriptors(1);
  descriptors.push_back(std::move(fd));
  send_packet("m", descriptors);
}

// Somebody else who says little, or says it is the good one.
void HostileClient::connect_once_more() {
  test::RawClient other(path_);
  Descriptors descriptors = odd_descriptors(2);
  if (dice_.one_in(2)) {
    other.send("hello", test::RawClient::hello("good", 0), std::move(descriptors));
  } else {
    other.send_text(dice_.bytes(100), std::move(descriptors));
  }
}

Descriptors HostileClient::odd_descriptors(uint64_t most) {
  Descriptors descriptors;
  for (uint64_t i = dice_.below(most + 1); i != 0; --i) {
    shm::UniqueFd fd = odd_descriptor(dice_);
    if (fd.valid()) descriptors.push_back(std::move(fd));
  }
  return descriptors;
}

}  // namespace wherry::fuzz
