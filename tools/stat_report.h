// StatReport: one look at a stats file, and its two forms for people and programs.
//
// Plain values; any thread. Nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shm/stats_reader.h"
#include "shm/status.h"
#include "tools/engine_life.h"

namespace wherry::tools {

struct PollerReport {
  uint32_t index = 0;
  int32_t cpu = -1;
  std::string_view idle;
  std::string_view state;
  uint64_t turns = 0;
  uint64_t busy_ns = 0;
  uint64_t idle_ns = 0;
  uint64_t longest_turn_ns = 0;
  uint64_t sleeps = 0;
  uint64_t wakeups = 0;
  uint64_t wakeups_by_timeout_with_work = 0;
  uint64_t records = 0;
  uint64_t pairs = 0;
  uint64_t runs = 0;
  uint64_t batches = 0;
  uint64_t notifications = 0;
  uint64_t violations = 0;
  uint64_t plan_hits = 0;
  uint64_t plan_misses = 0;
  uint64_t in_flight = 0;
};

// What all pollers did by one transport.
struct TrafficReport {
  uint32_t transport = 0;
  std::string name;
  uint64_t bytes = 0;
  uint64_t completed[kCodeCount] = {};
};

struct StatReport {
  shm::StatsIdentity identity;
  shm::StatsState state;
  LifeReport life;
  uint64_t taken_wall_ns = 0;
  uint64_t taken_monotonic_ns = 0;
  std::vector<PollerReport> pollers;
  std::vector<TrafficReport> traffic;  // those with requests or bytes
  shm::HistogramCopy latency;
  shm::HistogramCopy queue;
  std::vector<shm::ClientRecord> clients;
  std::vector<shm::TransportRecord> transports;
  std::vector<shm::LinkRecord> peers;
  std::vector<shm::LinkRecord> devices;
  std::vector<shm::CounterRecord> counters;
  std::vector<shm::ErrorRecord> errors;
};

StatReport take_report(const shm::StatsReader& stats, const LifeReport& life, uint64_t now_wall_ns,
                       uint64_t now_monotonic_ns);

// The part of its time that a poller worked, 0 to 1; since `before` when that is given.
double busy_ratio(const PollerReport& now, const PollerReport* before = nullptr);

// For people. `before` is an earlier report of the same engine: rates and ratios are then of the
// time in between. Everything from the file is made printable.
std::string text_report(const StatReport& report, const StatReport* before = nullptr);
// Only the header and the errors, with their times.
std::string text_errors(const StatReport& report);

// For programs: a JSON object, on several lines or one.
std::string json_report(const StatReport& report, bool one_line);
// {"life": "...", "error": {"code": "...", "message": "..."}} where there is no report.
std::string json_failure(const Status& status, bool one_line);

}  // namespace wherry::tools
