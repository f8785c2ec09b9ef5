// Replies and events: what the engine says on the control socket, as texts.
//
// Pure functions; any thread. Every text is valid JSON whatever the values hold. shm/protocol.h has
// the messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/control/config.h"
#include "engine/control/messages.h"
#include "engine/tables.h"
#include "shm/status.h"

namespace wherry::engine {

// Which request a reply answers.
struct ReplyTo {
  uint64_t id = 0;
  uint32_t version = 0;
};

std::string ok_reply(ReplyTo to);
std::string error_reply(ReplyTo to, const Status& status);

struct HelloReply {
  uint32_t protocol = 0;
  std::string engine;
  uint64_t engine_incarnation = 0;
  uint64_t session = 0;
  uint64_t incarnation = 0;
  uint64_t features = 0;
  std::string state;
  ClientLimits limits;
  uint32_t pollers = 0;
  int64_t clock_offset_ns = 0;
  uint64_t default_deadline_ms = 0;  // of a request that names none
};
std::string hello_reply(ReplyTo to, const HelloReply& reply);

std::string channel_reply(ReplyTo to, uint32_t channel);
std::string region_reply(ReplyTo to, uint64_t handle, bool writable);
std::string layout_reply(ReplyTo to, uint64_t handle);
std::string found_layout_reply(ReplyTo to, uint64_t handle, const View& view, bool writable,
                               uint64_t incarnation);
std::string found_client_reply(ReplyTo to, uint64_t handle, uint64_t incarnation);

struct TransportReport {
  std::string name;
  uint32_t level = 0;
  bool available = false;
  std::string reason;
  std::string info;
};
std::string transports_reply(ReplyTo to, const std::vector<TransportReport>& transports);

struct PollerReport {
  int cpu = -1;  // -1 = not pinned
  std::string idle;
};
struct StatusReport {
  std::string name;
  std::string version;
  uint32_t pid = 0;
  std::string state;
  std::string reason;
  uint64_t incarnation = 0;
  uint64_t uptime_ms = 0;
  std::vector<PollerReport> pollers;
  uint32_t clients = 0;
};
std::string status_reply(ReplyTo to, const StatusReport& report);

struct ClientReport {
  std::string instance;
  uint32_t rank = 0;
  uint64_t session = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
  std::string state;
  uint32_t channels = 0;
  uint32_t regions = 0;
  uint32_t layouts = 0;
  uint32_t found = 0;
  uint32_t exports = 0;
  uint64_t registered_bytes = 0;
  uint64_t attached_ms = 0;
};
std::string clients_reply(ReplyTo to, const std::vector<ClientReport>& clients);

std::string state_event(std::string_view state, std::string_view reason);
std::string stale_event(const std::vector<uint64_t>& handles);
std::string closing_event(std::string_view reason);

}  // namespace wherry::engine
