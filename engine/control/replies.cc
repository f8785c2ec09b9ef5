#include "engine/control/replies.h"

#include <nlohmann/json.hpp>

#include "shm/protocol.h"

namespace wherry::engine {
namespace {

using nlohmann::json;

// Bytes that are no UTF-8 are replaced: dump() would throw.
std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json answer(ReplyTo to) {
  return {{"type", "reply"}, {"version", to.version}, {"id", to.id}, {"ok", true}};
}

json event(const char* name) {
  return {{"type", "event"}, {"version", shm::protocol::kVersion}, {"event", name}};
}

const char* rights_name(bool writable) { return writable ? "read_write" : "read"; }

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

json limits_json(const ClientLimits& limits) {
  return {{"channels_per_client", limits.channels_per_client},
          {"regions_per_client", limits.regions_per_client},
          {"layouts_per_client", limits.layouts_per_client},
          {"layout_parts_per_client", limits.layout_parts_per_client},
          {"found_per_client", limits.found_per_client},
          {"registered_bytes_per_client", limits.registered_bytes_per_client},
          {"submission_slots", limits.submission_slots}};
}

}  // namespace

std::string ok_reply(ReplyTo to) { return text_of(answer(to)); }

std::string error_reply(ReplyTo to, const Status& status) {
  json object = answer(to);
  object["ok"] = false;
  object["code"] = code_name(status.code());
  object["message"] = status.message();
  return text_of(object);
}

std::string hello_reply(ReplyTo to, const HelloReply& reply) {
  json object = answer(to);
  object["protocol"] = reply.protocol;
  object["engine"] = reply.engine;
  object["engine_incarnation"] = reply.engine_incarnation;
  object["session"] = reply.session;
  object["incarnation"] = reply.incarnation;
  object["features"] = reply.features;
  object["state"] = reply.state;
  object["limits"] = limits_json(reply.limits);
  object["pollers"] = reply.pollers;
  object["clock_offset_ns"] = reply.clock_offset_ns;
  object["default_deadline_ms"] = reply.default_deadline_ms;
  return text_of(object);
}

std::string channel_reply(ReplyTo to, uint32_t channel) {
  json object = answer(to);
  object["channel"] = channel;
  return text_of(object);
}

std::string region_reply(ReplyTo to, uint64_t handle, bool writable) {
  json object = answer(to);
  object["handle"] = handle;
  object["writable"] = writable;
  return text_of(object);
}

std::string layout_reply(ReplyTo to, uint64_t handle) {
  json object = answer(to);
  object["handle"] = handle;
  return text_of(object);
}

std::string found_layout_reply(ReplyTo to, uint64_t handle, const View& view, bool writable,
                               uint64_t incarnation) {
  json object = answer(to);
  object["handle"] = handle;
  object["geometry"] = geometry_json(view.geometry);
  json& lengths = object["parts"] = json::array();
  for (const Part& part : view.parts) lengths.push_back(part.length);
  object["rights"] = rights_name(writable);
  object["incarnation"] = incarnation;
  return text_of(object);
}

std::string found_client_reply(ReplyTo to, uint64_t handle, uint64_t incarnation) {
  json object = answer(to);
  object["handle"] = handle;
  object["incarnation"] = incarnation;
  return text_of(object);
}

std::string transports_reply(ReplyTo to, const std::vector<TransportReport>& transports) {
  json object = answer(to);
  json& list = object["transports"] = json::array();
  for (const TransportReport& transport : transports) {
    list.push_back({{"name", transport.name},
                    {"level", transport.level},
                    {"available", transport.available},
                    {"reason", transport.reason},
                    {"info", transport.info}});
  }
  return text_of(object);
}

std::string status_reply(ReplyTo to, const StatusReport& report) {
  json object = answer(to);
  object["name"] = report.name;
  object["engine_version"] = report.version;
  object["pid"] = report.pid;
  object["state"] = report.state;
  object["reason"] = report.reason;
  object["incarnation"] = report.incarnation;
  object["uptime_ms"] = report.uptime_ms;
  object["clients"] = report.clients;
  json& pollers = object["pollers"] = json::array();
  for (const PollerReport& poller : report.pollers) {
    pollers.push_back({{"cpu", poller.cpu}, {"idle", poller.idle}});
  }
  return text_of(object);
}

std::string clients_reply(ReplyTo to, const std::vector<ClientReport>& clients) {
  json object = answer(to);
  json& list = object["clients"] = json::array();
  for (const ClientReport& client : clients) {
    list.push_back({{"instance", client.instance},
                    {"rank", client.rank},
                    {"session", client.session},
                    {"pid", client.pid},
                    {"uid", client.uid},
                    {"state", client.state},
                    {"channels", client.channels},
                    {"regions", client.regions},
                    {"layouts", client.layouts},
                    {"found", client.found},
                    {"exports", client.exports},
                    {"registered_bytes", client.registered_bytes},
                    {"attached_ms", client.attached_ms}});
  }
  return text_of(object);
}

std::string state_event(std::string_view state, std::string_view reason) {
  json object = event("state");
  object["state"] = state;
  object["reason"] = reason;
  return text_of(object);
}

std::string stale_event(const std::vector<uint64_t>& handles) {
  json object = event("stale");
  object["handles"] = handles;
  return text_of(object);
}

std::string closing_event(std::string_view reason) {
  json object = event("closing");
  object["reason"] = reason;
  return text_of(object);
}

}  // namespace wherry::engine
