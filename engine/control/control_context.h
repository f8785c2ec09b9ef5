// ControlContext: what the sessions of one engine share on the control thread.
//
// Owned by the control thread and used by it only. Sessions reach each other through it, by session
// id, so that none keeps a pointer to another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/control/config.h"
#include "engine/control/exports.h"
#include "engine/control/grace.h"
#include "engine/control/mappings.h"
#include "engine/control/replies.h"
#include "engine/control/timers.h"
#include "engine/poller/poller.h"
#include "shm/stats_writer.h"

namespace wherry::engine {

class Session;

struct ControlContext {
  ControlContext(const Config& engine_config, Registrar* engine_registrar)
      : config(engine_config), registrar(engine_registrar), mappings(engine_registrar) {}

  const Config& config;
  Registrar* const registrar;
  uint64_t incarnation = 0;
  uint64_t start_ns = 0;
  std::vector<PollerReport> poller_reports;
  std::vector<TransportReport> transports;

  std::vector<Poller*> pollers;
  std::vector<uint32_t> channels_of_poller;  // by index
  uint32_t next_poller = 0;                  // round robin

  Mappings mappings;
  Exports exports;
  GraceList grace;
  Timers timers;
  shm::StatsWriter* stats = nullptr;

  shm::EngineState state = shm::EngineState::kStarting;
  std::string reason;  // of the state

  // Attached clients, until everything of them is released.
  std::map<uint64_t, std::shared_ptr<Session>> sessions;            // by session id
  std::map<std::pair<std::string, uint32_t>, uint64_t> session_of;  // by (instance, rank)
  std::vector<uint64_t> gone;  // sessions to be dropped at the end of the turn

  uint64_t last_view_id = 0;
  uint64_t last_wait = 0;  // of find_layout

  Session* find_session(uint64_t id) const {
    const auto found = sessions.find(id);
    return found == sessions.end() ? nullptr : found->second.get();
  }
  Session* find_session(const std::string& instance, uint32_t rank) const {
    const auto found = session_of.find({instance, rank});
    return found == session_of.end() ? nullptr : find_session(found->second);
  }
};

}  // namespace wherry::engine
