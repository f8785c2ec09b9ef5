#include "tools/ctl_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "shm/text.h"

namespace wherry::tools {
namespace {

using Json = nlohmann::json;
using Row = std::vector<std::string>;

// A member as a text.
std::string cell(const Json& object, const char* key) {
  const Json value = object.is_object() ? object.value(key, Json()) : Json();
  if (value.is_null()) return "?";
  return shm::printable(value.is_string()
                            ? value.get<std::string>()
                            : value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// As wherry-stat shows it; a JSON number of 64 bits is not safe with every reader either.
Json hex(const Json& id) {
  if (!id.is_number_unsigned()) return id;
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(id.get<uint64_t>()));
  return text.data();
}

const Json& list_of(const Json& reply, const char* key) {
  static const Json kNone = Json::array();
  const auto found = reply.find(key);
  return found != reply.end() && found->is_array() ? *found : kNone;
}

// Columns as wide as their widest cell, two spaces apart.
std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] + 2 - row[i].size(), ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string duration(const Json& milliseconds) {
  if (!milliseconds.is_number_unsigned()) return "?";
  const uint64_t seconds = milliseconds.get<uint64_t>() / 1000;
  const uint64_t days = seconds / 86400;
  const uint64_t hours = seconds / 3600 % 24;
  const uint64_t minutes = seconds / 60 % 60;
  if (days > 0) return std::to_string(days) + " d " + std::to_string(hours) + " h";
  if (hours > 0) return std::to_string(hours) + " h " + std::to_string(minutes) + " min";
  if (minutes > 0) return std::to_string(minutes) + " min " + std::to_string(seconds % 60) + " s";
  return std::to_string(seconds) + " s";
}

std::string member_duration(const Json& object, const char* key) {
  return duration(object.is_object() ? object.value(key, Json()) : Json());
}

}  // namespace

std::string status_text(const Json& reply) {
  std::string text = "engine " + cell(reply, "name") + ": " + cell(reply, "state");
  const std::string reason = cell(reply, "reason");
  if (!reason.empty() && reason != "?") text += " (" + reason + ")";
  text +=
      "\n  pid " + cell(reply, "pid") + ", version " + cell(reply, "engine_version") + ", up " +
      member_duration(reply, "uptime_ms") + ", incarnation " +
      cell({{"incarnation", hex(reply.is_object() ? reply.value("incarnation", Json()) : Json())}},
           "incarnation") +
      "\n  " + cell(reply, "clients") + " clients\n";
  size_t index = 0;
  for (const Json& poller : list_of(reply, "pollers")) {
    const std::string cpu = cell(poller, "cpu");
    text += "  poller " + std::to_string(index++) + ": " + cell(poller, "idle") + ", " +
            (cpu == "-1" ? "not pinned" : "core " + cpu) + "\n";
  }
  return text;
}

std::string clients_text(const Json& reply) {
  std::vector<Row> rows = {{"INSTANCE", "RANK", "STATE", "PID", "UID", "CHANNELS", "REGIONS",
                            "BYTES", "LAYOUTS", "FOUND", "PUBLISHED", "ATTACHED"}};
  for (const Json& client : list_of(reply, "clients")) {
    Row& row = rows.emplace_back();
    for (const char* key : {"instance", "rank", "state", "pid", "uid", "channels", "regions",
                            "registered_bytes", "layouts", "found", "exports"}) {
      row.push_back(cell(client, key));
    }
    row.push_back(member_duration(client, "attached_ms"));
  }
  return rows.size() == 1 ? "no clients\n" : table(rows);
}

std::string transports_text(const Json& reply) {
  std::vector<Row> rows = {{"TRANSPORT", "LEVEL", "AVAILABLE", "ABOUT"}};
  for (const Json& transport : list_of(reply, "transports")) {
    const std::string available = cell(transport, "available");
    rows.push_back({cell(transport, "name"), cell(transport, "level"),
                    available == "true" ? "yes" : (available == "false" ? "no" : "?"),
                    cell(transport, available == "true" ? "info" : "reason")});
  }
  return rows.size() == 1 ? "no transports\n" : table(rows);
}

std::string reply_json(const Json& reply) {
  Json shown = reply;
  for (const char* key : {"type", "version", "id"}) shown.erase(key);
  const auto incarnation = shown.find("incarnation");
  if (incarnation != shown.end()) *incarnation = hex(*incarnation);
  return shown.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace wherry::tools
