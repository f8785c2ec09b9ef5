#include "tools/stat_report.h"

#include <algorithm>

namespace wherry::tools {
namespace {

PollerReport read_poller(const shm::PollerStats& row) {
  PollerReport poller;
  constexpr auto kAcquire = std::memory_order_acquire;
  poller.index = row.index.load(kAcquire);
  poller.cpu = row.cpu.load(kAcquire);
  poller.idle = shm::idle_strategy_text(row.idle_strategy.load(kAcquire));
  poller.state = shm::poller_state_name(static_cast<shm::PollerState>(row.state.load(kAcquire)));
  poller.turns = row.turns.get();
  poller.busy_ns = row.busy_ns.get();
  poller.idle_ns = row.idle_ns.get();
  poller.longest_turn_ns = row.longest_turn_ns.get();
  poller.sleeps = row.sleeps.get();
  poller.wakeups = row.wakeups.get();
  poller.wakeups_by_timeout_with_work = row.wakeups_by_timeout_with_work.get();
  poller.records = row.records.get();
  poller.pairs = row.pairs.get();
  poller.runs = row.runs.get();
  poller.batches = row.batches.get();
  poller.notifications = row.notifications.get();
  poller.violations = row.violations.get();
  poller.plan_hits = row.plan_hits.get();
  poller.plan_misses = row.plan_misses.get();
  poller.in_flight = row.in_flight.get();
  return poller;
}

std::string transport_name(const std::vector<shm::TransportRecord>& transports, uint32_t id) {
  for (const shm::TransportRecord& transport : transports) {
    if (transport.id == id && !transport.name.empty()) return transport.name;
  }
  return id == 0 ? "none" : "transport_" + std::to_string(id);
}

}  // namespace

StatReport take_report(const shm::StatsReader& stats, const LifeReport& life, uint64_t now_wall_ns,
                       uint64_t now_monotonic_ns) {
  StatReport report;
  report.identity = stats.identity();
  report.state = stats.state();
  report.life = life;
  report.taken_wall_ns = now_wall_ns;
  report.taken_monotonic_ns = now_monotonic_ns;
  report.clients = stats.clients();
  report.transports = stats.transports();
  report.peers = stats.peers();
  report.devices = stats.devices();
  report.counters = stats.counters();
  report.errors = stats.errors();
  for (uint32_t id = 0; id < shm::kStatsTransports; ++id) {
    TrafficReport traffic;
    traffic.transport = id;
    traffic.name = transport_name(report.transports, id);
    uint64_t requests = 0;
    for (const shm::PollerStats* row : stats.pollers()) {
      traffic.bytes += row->bytes[id].get();
      for (uint32_t code = 0; code < kCodeCount; ++code) {
        const uint64_t count = row->completed[id][code].get();
        traffic.completed[code] += count;
        requests += count;
      }
    }
    if (requests != 0 || traffic.bytes != 0) report.traffic.push_back(traffic);
  }
  for (const shm::PollerStats* row : stats.pollers()) {
    report.pollers.push_back(read_poller(*row));
    report.latency.merge(row->latency_ns.copy());
    report.queue.merge(row->queue_ns.copy());
  }
  return report;
}

double busy_ratio(const PollerReport& now, const PollerReport* before) {
  uint64_t busy = now.busy_ns;
  uint64_t idle = now.idle_ns;
  if (before != nullptr && before->busy_ns <= busy && before->idle_ns <= idle) {
    busy -= before->busy_ns;
    idle -= before->idle_ns;
  }
  const double total = static_cast<double>(busy) + static_cast<double>(idle);
  return total > 0 ? static_cast<double>(busy) / total : 0;
}

}  // namespace wherry::tools
