// StatsReader: anybody's view of a stats file, of a live engine, a dead one, or a copy.
//
// Maps read-only and asks nothing of the engine. Whatever the bytes are, nothing outside the file
// is read: offsets and counts are checked once, on a private copy. Rows under a version come out
// whole; one whose writer died inside it is marked torn. Any thread may use its own reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shm/error_log.h"
#include "shm/segment.h"
#include "shm/stats.h"
#include "shm/status.h"

namespace wherry::shm {

struct StatsIdentity {
  std::string build;
  std::string engine_name;
  uint16_t major = 0;
  uint16_t minor = 0;
  uint64_t pid = 0;
  uint64_t incarnation = 0;
  uint64_t start_wall_ns = 0;
  uint64_t start_monotonic_ns = 0;
};

struct StatsState {
  EngineState state = EngineState::kStarting;
  std::string reason;
  uint64_t beats = 0;
  uint64_t beat_wall_ns = 0;
  bool torn = false;
};

struct ClientRecord {
  std::string instance;
  uint64_t session = 0;
  uint64_t incarnation = 0;
  uint32_t rank = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
  uint32_t flags = 0;
  uint32_t channels = 0;
  uint64_t attached_wall_ns = 0;
  uint64_t regions = 0;
  uint64_t layouts = 0;
  uint64_t registered_bytes = 0;
  // Sums over its channels.
  uint64_t requests = 0;
  uint64_t completed = 0;
  uint64_t failed = 0;
  uint64_t pairs = 0;
  uint64_t bytes = 0;
  uint64_t notifications = 0;
  uint64_t wakes = 0;
  uint64_t violations = 0;
  uint64_t deadline_misses = 0;
  uint64_t cancels = 0;
  bool torn = false;
};

struct CounterRecord {
  std::string name;
  std::string labels;
  std::string unit;
  uint64_t value = 0;
};

struct TransportRecord {
  uint32_t id = 0;
  std::string name;
  uint32_t level = 0;
  bool available = false;
  std::string reason;
  std::string info;
};

struct LinkRecord {
  std::string name;
  std::string state;
  uint64_t incarnation = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t errors = 0;
};

class StatsReader {
 public:
  // UNREACHABLE: no such file. NOT_PERMITTED: it may not be read. INVALID_ARGUMENT: not a stats
  // file, or cut short. VERSION_MISMATCH: of a release with another layout. STALE: its engine never
  // finished it.
  static Result<StatsReader> open(const std::string& path);

  const StatsIdentity& identity() const { return identity_; }
  StatsState state() const;

  // Rows that a poller wrote or writes; the cells may be read at any time.
  std::vector<const PollerStats*> pollers() const;
  std::vector<ClientRecord> clients() const;
  std::vector<CounterRecord> counters() const;
  std::vector<TransportRecord> transports() const;
  std::vector<LinkRecord> peers() const;
  std::vector<LinkRecord> devices() const;
  std::vector<ErrorRecord> errors() const;

 private:
  struct Table {
    uint64_t offset = 0;
    uint32_t count = 0;
    uint32_t row_bytes = 0;
  };

  Status check(uint64_t file_bytes);
  const StatsHeader& header() const { return *mapping_.at<const StatsHeader>(0); }
  std::vector<LinkRecord> links(StatsTable table) const;
  template <typename Row>
  const Row& row(StatsTable table, uint32_t index) const;
  uint32_t count(StatsTable table) const;

  MappedSegment mapping_;
  StatsIdentity identity_;
  Table tables_[kStatsTables];
  uint64_t error_log_offset_ = 0;
  uint64_t error_log_bytes_ = 0;
};

}  // namespace wherry::shm
