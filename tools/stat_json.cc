#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/stat_report.h"

namespace wherry::tools {
namespace {

using Json = nlohmann::ordered_json;

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

double age(const StatReport& report, uint64_t wall_ns) {
  return report.taken_wall_ns > wall_ns ? seconds(report.taken_wall_ns - wall_ns) : 0.0;
}

// Bytes that are no UTF-8 are replaced: what the file holds never makes this fail.
std::string dump(const Json& json, bool one_line) {
  return json.dump(one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// 64-bit ids as text: many JSON readers keep only 53 bits of a number.
std::string id_text(uint64_t id) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(id));
  return text.data();
}

Json histogram(const shm::HistogramCopy& copy) {
  const double count = static_cast<double>(copy.count);
  return {{"count", copy.count},
          {"p50", copy.quantile(500)},
          {"p99", copy.quantile(990)},
          {"p999", copy.quantile(999)},
          {"max", copy.max_ns},
          {"mean", copy.count == 0 ? 0.0 : static_cast<double>(copy.sum_ns) / count}};
}

Json poller(const PollerReport& p) {
  return {{"index", p.index},
          {"cpu", p.cpu < 0 ? Json(nullptr) : Json(p.cpu)},
          {"idle", p.idle},
          {"state", p.state},
          {"busy_ratio", busy_ratio(p)},
          {"busy_ns", p.busy_ns},
          {"idle_ns", p.idle_ns},
          {"longest_turn_ns", p.longest_turn_ns},
          {"turns", p.turns},
          {"sleeps", p.sleeps},
          {"wakeups", p.wakeups},
          {"wakeups_by_timeout_with_work", p.wakeups_by_timeout_with_work},
          {"records", p.records},
          {"pairs", p.pairs},
          {"runs", p.runs},
          {"batches", p.batches},
          {"notifications", p.notifications},
          {"violations", p.violations},
          {"plan_hits", p.plan_hits},
          {"plan_misses", p.plan_misses},
          {"in_flight", p.in_flight}};
}

Json client(const StatReport& report, const shm::ClientRecord& c) {
  return {{"instance", c.instance},
          {"rank", c.rank},
          {"session", id_text(c.session)},
          {"incarnation", id_text(c.incarnation)},
          {"pid", c.pid},
          {"uid", c.uid},
          {"stalled", (c.flags & shm::kClientStalled) != 0},
          {"draining", (c.flags & shm::kClientDraining) != 0},
          {"attached_s", age(report, c.attached_wall_ns)},
          {"channels", c.channels},
          {"regions", c.regions},
          {"layouts", c.layouts},
          {"registered_bytes", c.registered_bytes},
          {"requests", c.requests},
          {"completed", c.completed},
          {"failed", c.failed},
          {"pairs", c.pairs},
          {"bytes", c.bytes},
          {"notifications", c.notifications},
          {"wakes", c.wakes},
          {"violations", c.violations},
          {"deadline_misses", c.deadline_misses},
          {"cancels", c.cancels}};
}

Json links(const std::vector<shm::LinkRecord>& records) {
  Json result = Json::array();
  for (const shm::LinkRecord& link : records) {
    result.push_back({{"name", link.name},
                      {"state", link.state},
                      {"incarnation", id_text(link.incarnation)},
                      {"bytes_in", link.bytes_in},
                      {"bytes_out", link.bytes_out},
                      {"errors", link.errors}});
  }
  return result;
}

// {"memory": {"bytes": 1, "requests": {"OK": 2}}}
Json traffic(const std::vector<TrafficReport>& records) {
  Json result = Json::object();
  for (const TrafficReport& record : records) {
    Json requests = Json::object();
    for (uint32_t code = 0; code < kCodeCount; ++code) {
      if (record.completed[code] == 0) continue;
      requests[std::string(code_name(static_cast<Code>(code)))] = record.completed[code];
    }
    result[record.name] = {{"bytes", record.bytes}, {"requests", requests}};
  }
  return result;
}

void add_tables(const StatReport& report, Json& json) {
  json["transports"] = Json::array();
  for (const shm::TransportRecord& t : report.transports) {
    json["transports"].push_back({{"id", t.id},
                                  {"name", t.name},
                                  {"level", t.level},
                                  {"available", t.available},
                                  {"reason", t.reason},
                                  {"info", t.info}});
  }
  json["peers"] = links(report.peers);
  json["devices"] = links(report.devices);
  json["counters"] = Json::array();
  for (const shm::CounterRecord& c : report.counters) {
    json["counters"].push_back(
        {{"name", c.name}, {"labels", c.labels}, {"unit", c.unit}, {"value", c.value}});
  }
  json["errors"] = Json::array();
  for (const shm::ErrorRecord& e : report.errors) {
    json["errors"].push_back({{"error", shm::error_name(e.error)},
                              {"subject", e.subject},
                              {"count", e.count},
                              {"first_wall_ns", e.first_wall_ns},
                              {"last_wall_ns", e.last_wall_ns},
                              {"text", e.text}});
  }
}

}  // namespace

std::string json_report(const StatReport& report, bool one_line) {
  const shm::StatsIdentity& who = report.identity;
  Json json;
  json["engine"] = who.engine_name;
  json["build"] = who.build;
  json["layout"] = std::to_string(who.major) + "." + std::to_string(who.minor);
  json["pid"] = who.pid;
  json["incarnation"] = id_text(who.incarnation);
  json["life"] = life_name(report.life.life);
  json["life_reason"] = report.life.why;
  json["state"] = shm::engine_state_name(report.state.state);
  json["reason"] = report.state.reason;
  json["start_wall_ns"] = who.start_wall_ns;
  json["age_s"] = age(report, who.start_wall_ns);
  json["beats"] = report.state.beats;
  json["beat_wall_ns"] = report.state.beat_wall_ns;
  json["beat_age_s"] = age(report, report.state.beat_wall_ns);
  json["taken_wall_ns"] = report.taken_wall_ns;
  json["pollers"] = Json::array();
  for (const PollerReport& p : report.pollers) json["pollers"].push_back(poller(p));
  json["clients"] = Json::array();
  for (const shm::ClientRecord& c : report.clients) json["clients"].push_back(client(report, c));
  json["traffic"] = traffic(report.traffic);
  json["latency_ns"] = histogram(report.latency);
  json["queue_ns"] = histogram(report.queue);
  add_tables(report, json);
  return dump(json, one_line);
}

std::string json_failure(const Status& status, bool one_line) {
  std::string_view life = "unreadable";
  if (status.code() == Code::kUnreachable) life = "not_found";
  if (status.code() == Code::kStale) life = "stale";
  if (status.code() == Code::kVersionMismatch) life = "incompatible";
  if (status.code() == Code::kInvalidArgument) life = "incompatible";
  return dump({{"life", life},
               {"error", {{"code", code_name(status.code())}, {"message", status.message()}}}},
              one_line);
}

}  // namespace wherry::tools
