#include "clientlib/messages.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "shm/layout.h"
#include "shm/protocol.h"

namespace wherry::detail {
namespace {

constexpr uint64_t kCallMs = 60'000;        // for what the engine answers at once
constexpr uint64_t kFindMarginMs = 10'000;  // beyond the time the engine itself waits
constexpr uint64_t kMaxFindMs = 24 * 60 * 60 * 1000;

Status odd_answer(const char* type, const std::string& what) {
  return {Code::kInternal, std::string("answer to ") + type + ": wanted " + what +
                               ", got none; are engine and client library of one release?"};
}

// Reads values of an answer, by path; a missing or odd one leaves its default and clears good().
class Fields {
 public:
  explicit Fields(const JsonReader& body, std::string prefix = "")
      : body_(body), prefix_(std::move(prefix)) {}

  template <typename T = uint64_t>
  T number(const char* key) {
    const uint64_t* found = find(&JsonReader::number, key);
    if (found != nullptr && *found <= std::numeric_limits<T>::max()) return static_cast<T>(*found);
    return missing(key), T{0};
  }
  int64_t any_number(const char* key) {
    if (const int64_t* found = find(&JsonReader::negative, key)) return *found;
    return static_cast<int64_t>(number<uint64_t>(key));
  }
  std::string text(const char* key) {
    if (const std::string* found = find(&JsonReader::text, key)) return *found;
    return missing(key), std::string();
  }
  bool boolean(const char* key) {
    if (const bool* found = find(&JsonReader::boolean, key)) return *found;
    return missing(key), false;
  }
  bool good() const { return missing_.empty(); }
  std::string what_is_missing() const { return "key \"" + missing_ + '"'; }

 private:
  // Without a prefix nothing is allocated: an answer that was read cannot be lost for that.
  template <typename Value>
  const Value* find(const Value* (JsonReader::*get)(std::string_view) const noexcept,
                    const char* key) const {
    return prefix_.empty() ? (body_.*get)(key) : (body_.*get)(prefix_ + key);
  }
  void missing(const char* key) {
    if (missing_.empty()) missing_ = prefix_ + key;
  }

  const JsonReader& body_;
  const std::string prefix_;
  std::string missing_;
};

JsonWriter geometry_json(const Geometry& geometry) {
  JsonWriter json;
  json.number("kind", static_cast<uint64_t>(geometry.kind))
      .number("inner_order", static_cast<uint64_t>(geometry.inner_order))
      .number("dtype", static_cast<uint64_t>(geometry.dtype))
      .number("num_blocks", geometry.num_blocks)
      .number("num_layers", geometry.num_layers)
      .number("outer_dim", geometry.outer_dim)
      .number("page_size", geometry.page_size)
      .number("inner_dim", geometry.inner_dim);
  return json;
}

Geometry read_geometry(Fields& fields) {
  Geometry g;
  g.kind = static_cast<LayoutKind>(fields.number<uint8_t>("geometry/kind"));
  g.inner_order = static_cast<InnerOrder>(fields.number<uint8_t>("geometry/inner_order"));
  g.dtype = static_cast<DType>(fields.number<uint8_t>("geometry/dtype"));
  g.num_blocks = fields.number<uint32_t>("geometry/num_blocks");
  g.num_layers = fields.number<uint32_t>("geometry/num_layers");
  g.outer_dim = fields.number<uint32_t>("geometry/outer_dim");
  g.page_size = fields.number<uint32_t>("geometry/page_size");
  g.inner_dim = fields.number<uint32_t>("geometry/inner_dim");
  return g;
}

Result<Answer> call_soon(ControlLink& link, const char* type, const JsonWriter& body) {
  return link.call(type, body, {}, deadline_in_ms(kCallMs));
}

Status call_with_handle(ControlLink& link, const char* type, const char* key, uint64_t handle,
                        uint64_t deadline_ns) {
  return link.call(type, JsonWriter().number(key, handle), {}, deadline_ns).status();
}

}  // namespace

Result<Incoming> decode_incoming(const std::string& text) {
  Incoming incoming;
  if (!JsonReader::parse(text, &incoming.body)) return odd_answer("a request", "a JSON object");
  Fields fields(incoming.body);
  const std::string type = fields.text("type");
  if (type == "reply") {
    incoming.kind = Incoming::Kind::kReply;
    incoming.id = fields.number("id");
    const bool ok = fields.boolean("ok");
    if (!fields.good()) return odd_answer("a request", fields.what_is_missing());
    if (!ok) {
      incoming.status = Status(code_from_name(fields.text("code")).value_or(Code::kInternal),
                               fields.text("message"));
      if (incoming.status.ok()) incoming.status = odd_answer("a request", "a code other than OK");
    }
    return incoming;
  }
  const std::string event = type == "event" ? fields.text("event") : "";
  if (event == "state") {
    incoming.kind = Incoming::Kind::kState;
    incoming.state = fields.text("state");
    incoming.reason = fields.text("reason");
  } else if (event == "closing") {
    incoming.kind = Incoming::Kind::kClosing;
    incoming.reason = fields.text("reason");
  } else if (event == "stale") {
    incoming.kind = Incoming::Kind::kStale;
    if (const auto* handles = incoming.body.numbers("handles")) incoming.handles = *handles;
  }
  return incoming;  // an event of a later version is no error
}

std::string encode_request(const char* type, uint64_t id, const JsonWriter& body) {
  JsonWriter head;
  head.text("type", type).number("version", shm::protocol::kVersion).number("id", id);
  std::string text = "{" + head.members();
  if (!body.members().empty()) text += ',';
  text += body.members();
  text += '}';
  return text;
}

Result<HelloAnswer> call_hello(ControlLink& link, const InstanceId& instance, uint32_t rank,
                               uint64_t deadline_ns) {
  std::vector<shm::UniqueFd> self;
  self.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!self.front().valid()) {
    return errno_status(Code::kNoResources, "opening a pidfd of this process", errno);
  }
  JsonWriter body;
  body.number("protocol_min", shm::protocol::kMinVersion)
      .number("protocol_max", shm::protocol::kVersion)
      .number("layout_major", shm::kLayoutMajor)
      .number("layout_minor", shm::kLayoutMinor)
      .number("features", shm::kFeatures)
      .text("instance", instance)
      .number("rank", rank)
      .number("pid", static_cast<uint64_t>(getpid()))
      .number("clock_ns", monotonic_ns());
  Result<Answer> answer = link.call("hello", body, std::move(self), deadline_ns);
  if (!answer.ok()) return answer.status();
  Fields fields(answer->body);
  HelloAnswer hello;
  const auto protocol = fields.number<uint32_t>("protocol");
  hello.engine = fields.text("engine");
  hello.state = fields.text("state");
  hello.engine_incarnation = fields.number("engine_incarnation");
  hello.clock_offset_ns = fields.any_number("clock_offset_ns");
  hello.default_deadline_ms = fields.number<uint32_t>("default_deadline_ms");
  if (!fields.good()) return odd_answer("hello", fields.what_is_missing());
  if (protocol < shm::protocol::kMinVersion || protocol > shm::protocol::kVersion) {
    return Status(Code::kVersionMismatch, "attach: wanted protocol version " +
                                              std::to_string(shm::protocol::kMinVersion) + " to " +
                                              std::to_string(shm::protocol::kVersion) + ", got " +
                                              std::to_string(protocol) +
                                              "; install client library and engine of one release");
  }
  if (answer->descriptors.size() != 1) return odd_answer("hello", "a pidfd of the engine");
  hello.engine_pidfd = std::move(answer->descriptors.front());
  return hello;
}

Result<ChannelAnswer> call_open_channel(ControlLink& link, uint32_t submission_slots,
                                        bool notifications, uint32_t notification_slots,
                                        bool descriptor) {
  JsonWriter body;
  body.boolean("descriptor", descriptor);
  if (submission_slots != 0) body.number("submission_slots", submission_slots);
  if (!notifications) {
    body.number("notification_slots", 0);
  } else if (notification_slots != 0) {
    body.number("notification_slots", notification_slots);
  }
  Result<Answer> answer = call_soon(link, "open_channel", body);
  if (!answer.ok()) return answer.status();
  Fields fields(answer->body);
  ChannelAnswer channel;
  channel.number = fields.number<uint32_t>("channel");
  if (!fields.good()) return odd_answer("open_channel", fields.what_is_missing());
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
  Result<Answer> answer =
      link.call("register_region", JsonWriter().number("offset", offset).number("length", length),
                std::move(memory), kForever);
  if (!answer.ok()) return answer.status();
  Fields fields(answer->body);
  RegionAnswer region{fields.number("handle"), fields.boolean("writable")};
  if (!fields.good()) return odd_answer("register_region", fields.what_is_missing());
  return region;
}

Status call_free_region(ControlLink& link, uint64_t handle) {
  return call_with_handle(link, "free_region", "handle", handle, kForever);
}

Result<uint64_t> call_register_layout(ControlLink& link, const Geometry& geometry,
                                      const std::vector<EnginePart>& parts) {
  std::string list = "[";
  for (const EnginePart& part : parts) {
    if (list.size() > 1) list += ',';
    list += '[';
    list += std::to_string(part.region);
    list += ',';
    list += std::to_string(part.offset);
    list += ',';
    list += std::to_string(part.length);
    list += ']';
  }
  list += ']';
  JsonWriter body;
  body.object("geometry", geometry_json(geometry)).raw("parts", list);
  Result<Answer> answer = call_soon(link, "register_layout", body);
  if (!answer.ok()) return answer.status();
  Fields fields(answer->body);
  const uint64_t handle = fields.number("handle");
  if (!fields.good()) return odd_answer("register_layout", fields.what_is_missing());
  return handle;
}

Status call_free_layout(ControlLink& link, uint64_t handle) {
  return call_with_handle(link, "free_layout", "handle", handle, kForever);
}

Status call_publish(ControlLink& link, uint64_t layout, Tier tier, Rights rights,
                    const std::vector<InstanceId>& to) {
  JsonWriter body;
  body.number("layout", layout)
      .number("tier", static_cast<uint64_t>(tier))
      .text("rights", rights == Rights::kRead ? "read" : "read_write");
  if (to.empty()) {
    body.text("to", "*");
  } else {
    body.texts("to", to);
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
  JsonWriter body;
  body.text("instance", instance)
      .number("rank", rank)
      .number("tier", static_cast<uint64_t>(tier))
      .number("timeout_ms", timeout_ms);
  Result<Answer> answer =
      link.call("find_layout", body, {}, deadline_in_ms(timeout_ms + kFindMarginMs));
  if (!answer.ok()) return answer.status();
  Fields fields(answer->body);
  FoundAnswer found;
  found.handle = fields.number("handle");
  found.incarnation = fields.number("incarnation");
  found.rights = fields.text("rights") == "read_write" ? Rights::kReadWrite : Rights::kRead;
  found.geometry = read_geometry(fields);
  if (!fields.good()) return odd_answer("find_layout", fields.what_is_missing());
  if (Status status = check_geometry(found.geometry); !status.ok()) {
    return status.with_context("found layout");
  }
  std::vector<uint64_t>* parts = answer->body.numbers("parts");
  if (parts == nullptr || parts->size() != found.geometry.part_count()) {
    return odd_answer("find_layout", "as many lengths in \"parts\" as the geometry has");
  }
  found.part_bytes = std::move(*parts);
  return found;
}

Result<uint64_t> call_find_client(ControlLink& link, const InstanceId& instance, uint32_t rank) {
  JsonWriter body;
  body.text("instance", instance).number("rank", rank);
  Result<Answer> answer = call_soon(link, "find_client", body);
  if (!answer.ok()) return answer.status();
  Fields fields(answer->body);
  const uint64_t handle = fields.number("handle");
  if (!fields.good()) return odd_answer("find_client", fields.what_is_missing());
  return handle;
}

Status call_release_found(ControlLink& link, uint64_t handle) {
  return call_with_handle(link, "release_found", "handle", handle, kForever);
}

Result<std::vector<TransportInfo>> call_transports(ControlLink& link) {
  Result<Answer> answer = call_soon(link, "transports", {});
  if (!answer.ok()) return answer.status();
  std::vector<TransportInfo> transports;
  for (;;) {
    const std::string prefix = "transports/" + std::to_string(transports.size()) + "/";
    if (answer->body.text(prefix + "name") == nullptr) return transports;
    Fields fields(answer->body, prefix);
    TransportInfo info;
    info.name = fields.text("name");
    info.level = fields.number<uint32_t>("level");
    info.available = fields.boolean("available");
    info.reason = fields.text("reason");
    info.info = fields.text("info");
    if (!fields.good()) return odd_answer("transports", fields.what_is_missing());
    for (const TransportKind kind : {TransportKind::kMemory, TransportKind::kVerbs,
                                     TransportKind::kTcp, TransportKind::kNull}) {
      if (info.name == transport_kind_name(kind)) info.kind = kind;
    }
    transports.push_back(std::move(info));
  }
}

Status call_detach(ControlLink& link, uint64_t deadline_ns) {
  return link.call("detach", {}, {}, deadline_ns).status();
}

}  // namespace wherry::detail
