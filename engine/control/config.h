// The engine's configuration: one JSON file, validated as a whole before anything starts.
//
// Plain values; any thread. Every problem of a file is reported, not only the first: the Status of
// a failure is INVALID_ARGUMENT with one line a problem, each naming the JSON pointer of the key,
// what is wanted, what was found and what to do. Unknown and repeated keys are problems too. // and
// /* */ comments are allowed. Members mirror the keys of the file; configs/README.md and
// configs/engine.schema.json describe them, and a unit test keeps all of them alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/poller/idle.h"
#include "shm/status.h"

namespace wherry::engine {

struct SocketConfig {
  uint32_t mode = 0600;  // of engine.sock; 0660 when only a group is given
  std::string group;     // who else may attach; empty = nobody else
};

// How long an adaptive poller spins by default: longer where a sleep and wake-up cost more, that is
// under a hypervisor.
uint32_t default_spin_us();

// Where a poller runs.
enum class Pin : uint8_t {
  kNone,    // "cpu" absent or null
  kCpu,     // "cpu": 4
  kOffset,  // "cpu": "offset:0": by position in the set of cores that this process may use
};

struct PollerConfig {
  Pin pin = Pin::kNone;
  uint32_t cpu = 0;  // the core or the offset, by `pin`
  IdleStrategy idle = IdleStrategy::kAdaptive;
  uint32_t spin_us = default_spin_us();
};

struct ChannelsConfig {
  uint32_t submission_slots = 1024;   // of a channel whose client does not say; a power of two
  uint32_t notification_slots = 256;  // likewise
};

// What one client may use.
struct ClientLimits {
  uint32_t channels_per_client = 16;
  uint32_t regions_per_client = 4096;
  uint32_t layouts_per_client = 4096;
  uint32_t layout_parts_per_client = 1 << 20;  // of all its layouts: an entry each of lists
  uint32_t found_per_client = 4096;            // handles of others' layouts and clients
  uint64_t registered_bytes_per_client = 0;    // 0 = no limit
  uint32_t submission_slots = 8192;            // that one channel may ask for
};

struct LimitsConfig : ClientLimits {
  uint32_t clients = 64;  // attached at once
};

struct MemoryTransportConfig {
  bool enabled = true;
  uint64_t piece_bytes = 131072;  // copied between two looks at the rings; twice in caches
  uint64_t streaming_from_bytes = 8388608;  // regions and layouts this large are no cache's
  uint32_t copy_threads = 0;                // further cores that copy, of each poller
};

struct NullTransportConfig {
  bool enabled = false;  // moves nothing and says OK: benchmarks only
};

struct TransportsConfig {
  MemoryTransportConfig memory;
  NullTransportConfig null;
};

struct LogConfig {
  std::string level = "info";  // debug, info, warning, error
  std::string file;            // empty = standard error
};

struct Config {
  std::string name = "default";
  std::string run_dir;  // empty = by the rule of shm/run_root.h, from the name
  SocketConfig socket;
  std::string admin_group;  // who may administer beside the owner and root; empty = nobody
  uint32_t default_deadline_ms = 30000;  // of a request that names none
  uint32_t drain_timeout_ms = 10000;     // what SIGTERM gives accepted requests; 0 = no limit
  std::vector<PollerConfig> pollers = {PollerConfig()};
  bool allow_oversubscription = false;  // busy pollers on all cores
  uint32_t registrars = 2;
  ChannelsConfig channels;
  LimitsConfig limits;
  std::map<std::string, ClientLimits>
      client_limits;  // by instance; what a key leaves out is of limits
  TransportsConfig transports;
  LogConfig log;

  // The limits that hold for clients of this instance.
  const ClientLimits& limits_of(const std::string& instance) const {
    const auto found = client_limits.find(instance);
    return found == client_limits.end() ? limits : found->second;
  }
};

struct CoreSet;  // affinity.h

// What a file may say beyond the ordinary, and what it is to fit.
struct ConfigOptions {
  bool allow_null = false;         // the transport `null` (wherryd --allow-null)
  bool allow_external = false;     // pollers driven by the caller (tests)
  const CoreSet* cores = nullptr;  // the host's: what assign_cores would refuse is a problem too
};

// `origin` names the text in messages.
Result<Config> parse_config(std::string_view text, const std::string& origin,
                            const ConfigOptions& options = {});

// NO_RESOURCES or INVALID_ARGUMENT naming the path when the file cannot be read, is no regular file
// or is above 1 MiB.
Result<Config> load_config(const std::string& path, const ConfigOptions& options = {});

// The values that hold, every key included: a file that parse_config accepts.
std::string effective_config_json(const Config& config);

}  // namespace wherry::engine
