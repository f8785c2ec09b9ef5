#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/control/config.h"

namespace wherry::engine {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered poller_json(const PollerConfig& poller) {
  Ordered cpu;
  if (poller.pin == Pin::kCpu) cpu = poller.cpu;
  if (poller.pin == Pin::kOffset) cpu = "offset:" + std::to_string(poller.cpu);
  return {{"cpu", cpu}, {"idle", idle_strategy_name(poller.idle)}, {"spin_us", poller.spin_us}};
}

Ordered limits_json(const ClientLimits& limits) {
  return {{"channels_per_client", limits.channels_per_client},
          {"regions_per_client", limits.regions_per_client},
          {"layouts_per_client", limits.layouts_per_client},
          {"layout_parts_per_client", limits.layout_parts_per_client},
          {"found_per_client", limits.found_per_client},
          {"registered_bytes_per_client", limits.registered_bytes_per_client},
          {"submission_slots", limits.submission_slots}};
}

}  // namespace

std::string effective_config_json(const Config& config) {
  char mode[8];
  std::snprintf(mode, sizeof(mode), "%04o", config.socket.mode & 0777u);
  Ordered pollers = Ordered::array();
  for (const PollerConfig& poller : config.pollers) pollers.push_back(poller_json(poller));
  Ordered limits = {{"clients", config.limits.clients}};
  limits.update(limits_json(config.limits));
  Ordered client_limits = Ordered::object();
  for (const auto& [instance, of_client] : config.client_limits)
    client_limits[instance] = limits_json(of_client);
  const MemoryTransportConfig& memory = config.transports.memory;

  const Ordered document = {
      {"name", config.name},
      {"run_dir", config.run_dir},
      {"socket", {{"mode", mode}, {"group", config.socket.group}}},
      {"admin_group", config.admin_group},
      {"default_deadline_ms", config.default_deadline_ms},
      {"drain_timeout_ms", config.drain_timeout_ms},
      {"pollers", pollers},
      {"allow_oversubscription", config.allow_oversubscription},
      {"registrars", config.registrars},
      {"channels",
       {{"submission_slots", config.channels.submission_slots},
        {"notification_slots", config.channels.notification_slots}}},
      {"limits", limits},
      {"client_limits", client_limits},
      {"transports",
       {{"memory",
         {{"enabled", memory.enabled},
          {"piece_bytes", memory.piece_bytes},
          {"streaming_from_bytes", memory.streaming_from_bytes},
          {"copy_threads", memory.copy_threads}}},
        {"null", {{"enabled", config.transports.null.enabled}}}}},
      {"log", {{"level", config.log.level}, {"file", config.log.file}}},
  };
  return document.dump(2, ' ', false, Ordered::error_handler_t::replace);
}

}  // namespace wherry::engine
