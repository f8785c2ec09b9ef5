// A way to move bytes: the only thing that control and pollers know of transports.
//
// Transport is the control thread's side: availability, registration, exports, connections; its
// calls may block and are made from the control or registrar threads as noted. Lane is one poller's
// side: posting, polling, aborting; it belongs to that poller's thread, never blocks, never
// allocates and fails through completions. A transport knows neither control nor pollers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tables.h"
#include "shm/status.h"

namespace wherry::engine {

// Numbers travel in completions and never change.
enum class TransportId : uint8_t { kNone = 0, kMemory = 1, kVerbs = 2, kTcp = 3, kNull = 4 };
inline constexpr uint8_t kTransportIds = 5;
std::string_view transport_name(TransportId id);

// Order of preference: the highest level that both ends have carries a request.
enum class TransportLevel : uint8_t { kTcp = 1, kNic = 2, kMemory = 3 };

struct Availability {
  bool available = false;
  std::string reason;  // why not
};

// One contiguous piece to move. Both sides lie inside one mapping each. `request` and `pair_*` come
// back in the completion as they are.
struct Run {
  const Mapping* source = nullptr;  // null on a side that is remote
  const Mapping* destination = nullptr;
  uint64_t source_offset = 0;  // in the mapping (remote side: in the export)
  uint64_t destination_offset = 0;
  uint64_t length = 0;
  uint32_t request = 0;     // the poller's request slot
  uint32_t first_pair = 0;  // pairs this run carries (a part of): first, count
  uint32_t pair_count = 0;
  bool streaming = false;  // hint: the bytes will not be read again soon
};

// One finished run.
struct RunResult {
  uint32_t request = 0;
  uint32_t first_pair = 0;
  uint32_t pair_count = 0;
  uint64_t bytes = 0;     // length of the run, however it ended
  Code code = Code::kOk;  // kCancelled for a run that abort() dropped untouched
  uint8_t wc_status = 0;
  uint16_t error_number = 0;
  uint32_t vendor_error = 0;
};

struct LaneStats {
  uint64_t runs = 0;
  uint64_t bytes = 0;
  uint64_t batches = 0;
  uint64_t errors = 0;
};

// One poller's end of a transport.
class Lane {
 public:
  virtual ~Lane() = default;

  // Runs that post() would take now, and how many bytes the poller should hand over at most before
  // it polls again: what is posted cannot be taken back quickly, so this bounds cancel and
  // unfairness.
  virtual uint32_t room() const = 0;
  virtual uint64_t window_bytes() const = 0;

  // Longest run it takes; the poller cuts longer ones.
  virtual uint64_t max_run_bytes() const = 0;

  // Takes `count` (at most room()) runs; one doorbell for all of them. Each ends in exactly one
  // RunResult.
  virtual void post(const Run* runs, uint32_t count) = 0;

  // Does a bounded piece of work and fills in up to `capacity` results of finished runs.
  virtual uint32_t poll(RunResult* results, uint32_t capacity) = 0;

  // Drops the request's runs that nothing has begun to move; begun ones go on. All of them still
  // come back through poll().
  virtual void abort(uint32_t request) = 0;

  // Whether anything is posted and not yet returned by poll().
  virtual bool busy() const = 0;

  // Arms a wake-up for the next completion and returns the descriptor to watch, or -1 when poll()
  // itself does the work and a busy lane must not sleep.
  virtual int arm() = 0;

  virtual LaneStats stats() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual TransportId id() const = 0;
  virtual TransportLevel level() const = 0;
  // Whether this host and config allow it.
  virtual Availability available() const = 0;
  // A line for people: devices, addresses.
  virtual std::string info() const = 0;

  // Control thread, once each.
  virtual Status start() = 0;
  virtual void stop() = 0;
  // One per poller, made before the poller starts and destroyed after it ends.
  virtual std::unique_ptr<Lane> make_lane(uint32_t poller) = 0;

  // Registrar threads: makes a mapping usable (pins it, where the transport must). May take long.
  virtual Status register_mapping(const Mapping& mapping) = 0;
  virtual void release_mapping(const Mapping& mapping) = 0;

  // Remote access: gives out, and takes back, a token for a byte range and right of a mapping.
  virtual Result<std::string> export_range(const Mapping& mapping, uint64_t offset, uint64_t length,
                                           uint8_t rights) = 0;
  virtual Status revoke_range(const std::string& token) = 0;

  // Connections between two engines: bytes that the control threads carry for the transport.
  virtual Result<std::string> offer(uint64_t peer) = 0;
  virtual Result<std::string> accept(uint64_t peer, const std::string& offer) = 0;
  virtual Status finish(uint64_t peer, const std::string& answer) = 0;
};

}  // namespace wherry::engine
