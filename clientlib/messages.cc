#include "clientlib/messages.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "shm/layout.h"
#include "shm/protocol.h"

namespace wherry::detail {
namespace {

using nlohmann::json;

constexpr uint64_t kCallMs = 60'000;        // for what the engine answers at once
constexpr uint64_t kFindMarginMs = 10'000;  // beyond the time the engine itself waits
constexpr uint64_t kMaxFindMs = 24 * 60 * 60 * 1000;

Status odd_answer(const char* type, const std::string& what) {
  return {Code::kInternal, std::string("answer to ") + type + ": wanted " + what +
                               ", got none; are engine and client library of one release?"};
}

// Reads keys of an answer; a missing or odd one leaves its default and clears good().
class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {}

  template <typename T>
  T number(const char* key, T fallback = 0) {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_number_integer()) {
      missing_ = missing_.empty() ? key : missing_;
      return fallback;
    }
    return found->get<T>();
  }
  std::string text(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_string()) {
      missing_ = missing_.empty() ? key : missing_;
      return {};
    }
    return found->get<std::string>();
  }
  bool boolean(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_boolean()) {
      missing_ = missing_.empty() ? key : missing_;
      return false;
    }
    return found->get<bool>();
  }
  bool good() const { return missing_.empty(); }
  std::string missing() const { return "key \"" + missing_ + '"'; }

 private:
  const json& object_;
  std::string missing_;
};

json geometry_json(const Geometry& geometry) {
  return {{"kind", static_cast<uint32_t>(geometry.kind)},
          {"inner_order", static_cast<uint32_t>(geometry.inner_order)},
          {"dtype", static_cast<uint32_t>(geometry.dtype)},
          {"num_blocks", geometry.num_blocks},
          {"num_layers", geometry.num_layers},
          {"outer_dim", geometry.outer_dim},
          {"page_size", geometry.page_size},
          {"inner_dim", geometry.inner_dim}};
}

Result<Answer> call_soon(ControlLink& link, const char* type, const json& body) {
  return link.call(type, body, {}, deadline_in_ms(kCallMs));
}

Status call_with_handle(ControlLink& link, const char* type, const char* key, uint64_t handle,
                        uint64_t deadline_ns) {
  json body = json::object();
  body[key] = handle;
  return link.call(type, body, {}, deadline_ns).status();
}

}  // namespace

Result<Incoming> decode_incoming(const std::string& text) {
  auto body = std::make_shared<json>(json::parse(text, nullptr, false));
  if (!body->is_object()) return odd_answer("a request", "a JSON object");
  Reader reader(*body);
  Incoming incoming;
  const std::string type = reader.text("type");
  if (type == "reply") {
    incoming.kind = Incoming::Kind::kReply;
    incoming.id = reader.number<uint64_t>("id");
    const bool ok = reader.boolean("ok");
    if (!reader.good()) return odd_answer("a request", reader.missing());
    if (!ok) {
      const std::string message = reader.text("message");
      incoming.status =
          Status(code_from_name(reader.text("code")).value_or(Code::kInternal), message);
      if (incoming.status.ok()) incoming.status = odd_answer("a request", "a code other than OK");
    }
    incoming.body = std::move(body);
    return incoming;
  }
  const std::string event = type == "event" ? reader.text("event") : "";
  if (event == "state") {
    incoming.kind = Incoming::Kind::kState;
    incoming.state = reader.text("state");
    incoming.reason = reader.text("reason");
  } else if (event == "closing") {
    incoming.kind = Incoming::Kind::kClosing;
    incoming.reason = reader.text("reason");
  } else if (event == "stale") {
    incoming.kind = Incoming::Kind::kStale;
    const auto handles = body->find("handles");
    for (const json& handle : handles != body->end() ? *handles : json::array()) {
      if (handle.is_number_unsigned()) incoming.handles.push_back(handle.get<uint64_t>());
    }
  }
  return incoming;  // an event of a later version is no error
}

std::string encode_request(const char* type, uint64_t id, const json& body) {
  json object = body;
  object["type"] = type;
  object["version"] = shm::protocol::kVersion;
  object["id"] = id;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<HelloAnswer> call_hello(ControlLink& link, const InstanceId& instance, uint32_t rank,
                               uint64_t deadline_ns) {
  std::vector<shm::UniqueFd> self;
  self.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!self.front().valid()) {
    return errno_status(Code::kNoResources, "opening a pidfd of this process", errno);
  }
  Result<Answer> answer = link.call("hello",
                                    {{"protocol_min", shm::protocol::kMinVersion},
                                     {"protocol_max", shm::protocol::kVersion},
                                     {"layout_major", shm::kLayoutMajor},
                                     {"layout_minor", shm::kLayoutMinor},
                                     {"features", shm::kFeatures},
                                     {"instance", instance},
                                     {"rank", rank},
                                     {"pid", static_cast<uint32_t>(getpid())},
                                     {"clock_ns", monotonic_ns()}},
                                    std::move(self), deadline_ns);
  if (!answer.ok()) return answer.status();
  Reader reader(*answer->body);
  HelloAnswer hello;
  const auto protocol = reader.number<uint32_t>("protocol");
  hello.engine = reader.text("engine");
  hello.state = reader.text("state");
  hello.engine_incarnation = reader.number<uint64_t>("engine_incarnation");
  hello.session = reader.number<uint64_t>("session");
  hello.clock_offset_ns = reader.number<int64_t>("clock_offset_ns");
  if (!reader.good()) return odd_answer("hello", reader.missing());
  if (protocol < shm::protocol::kMinVersion || protocol > shm::protocol::kVersion) {
    return Status(Code::kVersionMismatch, "attach: wanted protocol version " +
                                              std::to_string(shm::protocol::kMinVersion) + " to " +
                                              std::to_string(shm::protocol::kVersion) + ", got " +
                                              std::to_string(protocol) +
                                              "; install client library and engine of one release");
  }
  const auto limits = answer->body->find("limits");
  if (limits != answer->body->end() && limits->is_object()) {
    hello.default_deadline_ms = Reader(*limits).number<uint64_t>("default_deadline_ms", 30'000);
  }
  if (answer->descriptors.size() != 1) return odd_answer("hello", "a pidfd of the engine");
  hello.engine_pidfd = std::move(answer->descriptors.front());
  return hello;
}

Result<ChannelAnswer> call_open_channel(ControlLink& link, uint32_t submission_slots,
                                        bool notifications, uint32_t notification_slots,
                                        bool descriptor) {
  json body = json::object();
  body["descriptor"] = descriptor;
  if (submission_slots != 0) body["submission_slots"] = submission_slots;
  if (!notifications) {
    body["notification_slots"] = 0;
  } else if (notification_slots != 0) {
    body["notification_slots"] = notification_slots;
  }
  Result<Answer> answer = call_soon(link, "open_channel", body);
  if (!answer.ok()) return answer.status();
  Reader reader(*answer->body);
  ChannelAnswer channel;
  channel.number = reader.number<uint32_t>("channel");
  if (!reader.good()) return odd_answer("open_channel", reader.missing());
  if (answer->descriptors.size() != (descriptor ? 4 : 3)) {
    return odd_answer("open_channel", "two segments and an eventfd");
  }
  channel.c2e = std::move(answer->descriptors[0]);
  channel.e2c = std::move(answer->descriptors[1]);
  channel.eventfd = std::move(answer->descriptors[2]);
  if (descriptor) channel.wake_socket = std::move(answer->descriptors[3]);
  return channel;
}

Status call_channel_mapped(ControlLink& link, uint32_t number) {
  return call_with_handle(link, "channel_mapped", "channel", number, deadline_in_ms(kCallMs));
}

Result<RegionAnswer> call_register_region(ControlLink& link, int memory_fd, uint64_t offset,
                                          uint64_t length) {
  std::vector<shm::UniqueFd> memory;
  memory.emplace_back(fcntl(memory_fd, F_DUPFD_CLOEXEC, 0));
  if (!memory.front().valid()) {
    return errno_status(Code::kNoResources, "passing a region's descriptor", errno);
  }
  // As long as it takes: pages of large regions are mapped and prefaulted one by one.
  Result<Answer> answer = link.call("register_region", {{"offset", offset}, {"length", length}},
                                    std::move(memory), kForever);
  if (!answer.ok()) return answer.status();
  Reader reader(*answer->body);
  RegionAnswer region{reader.number<uint64_t>("handle"), reader.boolean("writable")};
  if (!reader.good()) return odd_answer("register_region", reader.missing());
  return region;
}

Status call_free_region(ControlLink& link, uint64_t handle) {
  return call_with_handle(link, "free_region", "handle", handle, kForever);
}

Result<uint64_t> call_register_layout(ControlLink& link, const Geometry& geometry,
                                      const std::vector<EnginePart>& parts) {
  json list = json::array();
  for (const EnginePart& part : parts) {
    list.push_back(json::array({part.region, part.offset, part.length}));
  }
  Result<Answer> answer = call_soon(
      link, "register_layout", {{"geometry", geometry_json(geometry)}, {"parts", std::move(list)}});
  if (!answer.ok()) return answer.status();
  Reader reader(*answer->body);
  const auto handle = reader.number<uint64_t>("handle");
  if (!reader.good()) return odd_answer("register_layout", reader.missing());
  return handle;
}

Status call_free_layout(ControlLink& link, uint64_t handle) {
  return call_with_handle(link, "free_layout", "handle", handle, kForever);
}

Status call_publish(ControlLink& link, uint64_t layout, Tier tier, Rights rights,
                    const std::vector<InstanceId>& to) {
  json body = {{"layout", layout},
               {"tier", static_cast<uint32_t>(tier)},
               {"rights", rights == Rights::kRead ? "read" : "read_write"}};
  if (to.empty()) {
    body["to"] = "*";
  } else {
    body["to"] = to;
  }
  return call_soon(link, "publish", body).status();
}

Status call_unpublish(ControlLink& link, uint64_t layout) {
  return call_with_handle(link, "unpublish", "layout", layout, kForever);
}

Result<FoundAnswer> call_find_layout(ControlLink& link, const InstanceId& instance, uint32_t rank,
                                     Tier tier, uint64_t deadline_ns) {
  const uint64_t now = monotonic_ns();
  const uint64_t left_ms = deadline_ns > now ? (deadline_ns - now + 999'999) / 1'000'000 : 0;
  const uint64_t timeout_ms = std::min(left_ms, kMaxFindMs);
  Result<Answer> answer = link.call("find_layout",
                                    {{"instance", instance},
                                     {"rank", rank},
                                     {"tier", static_cast<uint32_t>(tier)},
                                     {"timeout_ms", timeout_ms}},
                                    {}, deadline_in_ms(timeout_ms + kFindMarginMs));
  if (!answer.ok()) return answer.status();
  Reader reader(*answer->body);
  FoundAnswer found;
  found.handle = reader.number<uint64_t>("handle");
  found.incarnation = reader.number<uint64_t>("incarnation");
  found.rights = reader.text("rights") == "read_write" ? Rights::kReadWrite : Rights::kRead;
  if (!reader.good()) return odd_answer("find_layout", reader.missing());
  const auto parts = answer->body->find("parts");
  const auto geometry = answer->body->find("geometry");
  if (parts == answer->body->end() || !parts->is_array() || geometry == answer->body->end() ||
      !geometry->is_object()) {
    return odd_answer("find_layout", "\"geometry\" and \"parts\"");
  }
  Reader inner(*geometry);
  Geometry& g = found.geometry;
  g.kind = static_cast<LayoutKind>(inner.number<uint8_t>("kind"));
  g.inner_order = static_cast<InnerOrder>(inner.number<uint8_t>("inner_order"));
  g.dtype = static_cast<DType>(inner.number<uint8_t>("dtype"));
  g.num_blocks = inner.number<uint32_t>("num_blocks");
  g.num_layers = inner.number<uint32_t>("num_layers");
  g.outer_dim = inner.number<uint32_t>("outer_dim");
  g.page_size = inner.number<uint32_t>("page_size");
  g.inner_dim = inner.number<uint32_t>("inner_dim");
  if (!inner.good()) return odd_answer("find_layout", inner.missing());
  if (Status status = check_geometry(g); !status.ok()) return status.with_context("found layout");
  for (const json& part : *parts) {
    if (!part.is_number_unsigned()) return odd_answer("find_layout", "lengths in \"parts\"");
    found.part_bytes.push_back(part.get<uint64_t>());
  }
  return found;
}

Result<uint64_t> call_find_client(ControlLink& link, const InstanceId& instance, uint32_t rank) {
  Result<Answer> answer = call_soon(link, "find_client", {{"instance", instance}, {"rank", rank}});
  if (!answer.ok()) return answer.status();
  Reader reader(*answer->body);
  const auto handle = reader.number<uint64_t>("handle");
  if (!reader.good()) return odd_answer("find_client", reader.missing());
  return handle;
}

Status call_release_found(ControlLink& link, uint64_t handle) {
  return call_with_handle(link, "release_found", "handle", handle, kForever);
}

Result<std::vector<TransportInfo>> call_transports(ControlLink& link) {
  Result<Answer> answer = call_soon(link, "transports", json::object());
  if (!answer.ok()) return answer.status();
  const auto list = answer->body->find("transports");
  if (list == answer->body->end() || !list->is_array()) {
    return odd_answer("transports", "a list \"transports\"");
  }
  std::vector<TransportInfo> transports;
  for (const json& one : *list) {
    if (!one.is_object()) return odd_answer("transports", "objects in \"transports\"");
    Reader reader(one);
    TransportInfo info;
    info.name = reader.text("name");
    info.level = reader.number<uint32_t>("level");
    info.available = reader.boolean("available");
    info.reason = reader.text("reason");
    info.info = reader.text("info");
    if (!reader.good()) return odd_answer("transports", reader.missing());
    for (const TransportKind kind : {TransportKind::kMemory, TransportKind::kVerbs,
                                     TransportKind::kTcp, TransportKind::kNull}) {
      if (info.name == transport_kind_name(kind)) info.kind = kind;
    }
    transports.push_back(std::move(info));
  }
  return transports;
}

Status call_detach(ControlLink& link, uint64_t deadline_ns) {
  return link.call("detach", json::object(), {}, deadline_ns).status();
}

}  // namespace wherry::detail
