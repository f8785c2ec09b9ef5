#include "engine/control/messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "engine/control/message_fields.h"
#include "shm/protocol.h"

namespace wherry::engine {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 3;                                // parts: object, list, list
constexpr uint64_t kMaxValues = 4 * kMaxLayoutParts + 256;  // of a whole message
constexpr uint64_t kMaxKeys = 64;                           // likewise

// Parses within bounds; the DOM of a hostile text is cut off, not built.
Status parse(const std::string& text, json* object) {
  using Event = json::parse_event_t;
  uint64_t values = 0;
  uint64_t keys = 0;
  const auto within_bounds = [&](int depth, Event event, json&) {
    if (event == Event::key && ++keys > kMaxKeys) {
      throw std::length_error("wanted at most " + std::to_string(kMaxKeys) + " keys");
    }
    if ((event == Event::value || event == Event::array_start) && ++values > kMaxValues) {
      throw std::length_error("wanted at most " + std::to_string(kMaxValues) + " values");
    }
    if (depth > kMaxDepth) throw std::length_error("wanted less nesting");
    return true;
  };
  try {
    *object = json::parse(text, within_bounds);
  } catch (const json::exception& error) {
    return {Code::kInvalidArgument, "control message: wanted JSON, got something else (" +
                                        printable(error.what()) +
                                        "); is the client of our release?"};
  } catch (const std::length_error& error) {
    return {Code::kInvalidArgument,
            std::string("control message: ") + error.what() + ", got more; ask for less at once"};
  }
  if (object->is_object()) return {};
  return {
      Code::kInvalidArgument,
      "control message: wanted a JSON object, got something else; is the client of our release?"};
}

Hello decode_hello(Fields& fields) {
  Hello hello;
  hello.protocol_min = fields.u32("protocol_min");
  hello.protocol_max = fields.u32("protocol_max");
  // Before anything else: what other keys mean depends on it.
  if (fields.good() && (hello.protocol_min > shm::protocol::kVersion ||
                        hello.protocol_max < shm::protocol::kMinVersion)) {
    fields.fail({Code::kVersionMismatch,
                 "attach: wanted a client that speaks a control protocol version from " +
                     std::to_string(shm::protocol::kMinVersion) + " to " +
                     std::to_string(shm::protocol::kVersion) + ", got one that speaks " +
                     std::to_string(hello.protocol_min) + " to " +
                     std::to_string(hello.protocol_max) +
                     "; install client library and engine of one release"});
    return hello;
  }
  hello.layout_major = fields.u32("layout_major", 0, UINT16_MAX);
  hello.layout_minor = fields.u32("layout_minor", 0, UINT16_MAX);
  hello.features = fields.u64("features");
  hello.instance = fields.instance("instance");
  hello.rank = fields.u32("rank");
  hello.pid = fields.u32("pid");
  hello.clock_ns = static_cast<int64_t>(fields.u64("clock_ns", 0, INT64_MAX));
  return hello;
}

OpenChannel decode_open_channel(Fields& fields) {
  OpenChannel open;
  if (fields.has("submission_slots"))
    open.submission_slots = fields.u32("submission_slots", 1, 1u << 30);
  if (fields.has("notification_slots")) {
    open.notification_slots = fields.u32("notification_slots", 0, 1u << 30);
  }
  if (fields.has("descriptor")) open.descriptor = fields.boolean("descriptor");
  return open;
}

template <typename Enum>
Enum enumerator(Fields& fields, const char* key, Enum first, Enum last) {
  return static_cast<Enum>(
      fields.u32(key, static_cast<uint32_t>(first), static_cast<uint32_t>(last)));
}

Tier decode_tier(Fields& fields) { return enumerator(fields, "tier", Tier::kG1, Tier::kG4); }

Geometry decode_geometry(Fields& fields) {
  Geometry geometry;
  Fields inner = fields.object("geometry");
  geometry.kind =
      enumerator(inner, "kind", LayoutKind::kFullyContiguous, LayoutKind::kDescriptorList);
  geometry.inner_order =
      enumerator(inner, "inner_order", InnerOrder::kUnknown, InnerOrder::kUniversal);
  geometry.dtype = enumerator(inner, "dtype", DType::kUint8, DType::kInt64);
  geometry.num_blocks = inner.u32("num_blocks");
  geometry.num_layers = inner.u32("num_layers");
  geometry.outer_dim = inner.u32("outer_dim");
  geometry.page_size = inner.u32("page_size");
  geometry.inner_dim = inner.u32("inner_dim");
  fields.merge(inner);
  return geometry;
}

Publish decode_publish(Fields& fields) {
  Publish publish;
  publish.layout = fields.u64("layout");
  publish.tier = decode_tier(fields);
  publish.writable = fields.one_of("rights", {"read", "read_write"}) == 1;
  publish.to = fields.instances("to", &publish.to_all);
  return publish;
}

FindLayout decode_find_layout(Fields& fields) {
  FindLayout find;
  find.instance = fields.instance("instance");
  find.rank = fields.u32("rank");
  find.tier = decode_tier(fields);
  find.timeout_ms = fields.u32("timeout_ms", 0, kMaxFindTimeoutMs);
  return find;
}

Admin decode_admin(Fields& fields) {
  Admin admin;
  // In the order of Admin::Command.
  admin.command = static_cast<Admin::Command>(
      fields.one_of("command", {"status", "clients", "drain", "stop", "kill", "transports"}));
  if (fields.has("reason")) admin.reason = printable(fields.text("reason"));
  return admin;
}

// The body of a message of this type; INVALID_ARGUMENT in `fields` for a type that is none.
RequestBody decode_body(const std::string& type, Fields& fields) {
  if (type == "hello") return decode_hello(fields);
  if (type == "open_channel") return decode_open_channel(fields);
  if (type == "channel_mapped") return ChannelMapped{fields.u32("channel")};
  if (type == "close_channel") return CloseChannel{fields.u32("channel")};
  if (type == "register_region") return RegisterRegion{fields.u64("offset"), fields.u64("length")};
  if (type == "free_region") return FreeRegion{fields.u64("handle")};
  if (type == "register_layout")
    return RegisterLayout{decode_geometry(fields), fields.parts("parts")};
  if (type == "free_layout") return FreeLayout{fields.u64("handle")};
  if (type == "publish") return decode_publish(fields);
  if (type == "unpublish") return Unpublish{fields.u64("layout")};
  if (type == "find_layout") return decode_find_layout(fields);
  if (type == "find_client") return FindClient{fields.instance("instance"), fields.u32("rank")};
  if (type == "release_found") return ReleaseFound{fields.u64("handle")};
  if (type == "transports") return ListTransports{};
  if (type == "detach") return Detach{};
  if (type == "admin") return decode_admin(fields);
  fields.fail({Code::kUnsupported, "control message: wanted a type of protocol version " +
                                       std::to_string(shm::protocol::kVersion) + ", got \"" +
                                       printable(type) + "\"; see shm/protocol.h"});
  return Detach{};
}

}  // namespace

Status decode_request(const std::string& text, ControlRequest* request) {
  json object;
  if (Status status = parse(text, &object); !status.ok()) return status;
  Fields fields(object, "control message");
  request->id = fields.u64("id");
  request->version = fields.u32("version");
  const std::string type = fields.text("type");
  if (!fields.good()) return fields.status();
  fields.name_after(type);
  request->body = decode_body(type, fields);
  fields.refuse_unknown_keys();
  return fields.status();
}

bool valid_instance(std::string_view name) {
  return !name.empty() && name.size() <= shm::protocol::kMaxInstanceBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

std::string printable(std::string_view text) {
  std::string result(text.substr(0, kMaxReasonBytes));
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
  }
  return result;
}

}  // namespace wherry::engine
