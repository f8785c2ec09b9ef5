#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "shm/text.h"
#include "tools/stat_report.h"

namespace wherry::tools {
namespace {

using shm::printable;

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  std::array<char, 512> text;
  va_list values;
  va_start(values, pattern);
  std::vsnprintf(text.data(), text.size(), pattern, values);
  va_end(values);
  return text.data();
}

// 0.38 us, 1.2 ms, 3.4 s, 5 min, 2.1 h, 3.0 d
std::string duration(double ns) {
  struct Unit {
    double ns;
    const char* name;
  };
  constexpr std::array<Unit, 6> kUnits = {
      {{86400e9, "d"}, {3600e9, "h"}, {60e9, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};
  for (const Unit& unit : kUnits) {
    if (ns >= unit.ns) return format("%.3g %s", ns / unit.ns, unit.name);
  }
  return format("%.0f ns", ns);
}

std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit == 0 ? format("%.0f B", bytes) : format("%.2f %s", bytes, kUnits[unit]);
}

std::string number(uint64_t value) { return std::to_string(value); }

// Rows of cells, the columns as wide as they need be; the first column to the left, the others to
// the right but the last, which is free text when `text_last`.
class TextTable {
 public:
  TextTable(std::vector<std::string> head, bool text_last) : text_last_(text_last) {
    rows_.push_back(std::move(head));
  }
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text() const {
    std::vector<size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string result;
    for (const auto& row : rows_) {
      result += " ";
      for (size_t i = 0; i < row.size(); ++i) {
        const bool last = i + 1 == row.size();
        const bool left = i == 0 || (last && text_last_);
        const std::string fill(widths[i] - row[i].size(), ' ');
        result += " " + (left ? row[i] + (last ? "" : fill) : fill + row[i]);
        if (!last) result += " ";
      }
      result += "\n";
    }
    return result;
  }

 private:
  bool text_last_;
  std::vector<std::vector<std::string>> rows_;
};

std::string ago(const StatReport& report, uint64_t wall_ns) {
  if (wall_ns > report.taken_wall_ns) return "0 ns";
  return duration(static_cast<double>(report.taken_wall_ns - wall_ns));
}

std::string header(const StatReport& report, const StatReport* before) {
  const shm::StatsIdentity& who = report.identity;
  std::string text = "engine " + printable(who.engine_name) + "  " + printable(who.build) +
                     "  layout " + number(who.major) + "." + number(who.minor) + "\n";
  text += "life   " + std::string(life_name(report.life.life)) +
          (report.life.why.empty() ? "" : " (" + printable(report.life.why) + ")") + ", pid " +
          number(who.pid) + ", incarnation " +
          format("%016llx", static_cast<unsigned long long>(who.incarnation)) + "\n";
  text += "state  " + std::string(shm::engine_state_name(report.state.state)) +
          (report.state.reason.empty() ? "" : " (" + printable(report.state.reason) + ")") +
          ", started " + shm::utc_text(who.start_wall_ns) + ", " + ago(report, who.start_wall_ns) +
          " ago\n";
  text += "beat   " + number(report.state.beats) + ", " + ago(report, report.state.beat_wall_ns) +
          " ago";
  if (before != nullptr && report.state.beats >= before->state.beats) {
    text += ", " + number(report.state.beats - before->state.beats) + " since the last look";
  }
  return text + "\n";
}

const PollerReport* same_poller(const StatReport* before, const PollerReport& poller) {
  if (before == nullptr) return nullptr;
  for (const PollerReport& candidate : before->pollers) {
    if (candidate.index == poller.index) return &candidate;
  }
  return nullptr;
}

std::string pollers(const StatReport& report, const StatReport* before) {
  TextTable table(
      {"poller", "cpu", "idle", "state", "busy", "longest loop", "sleeps", "late wakeups",
       "records", "runs", "in flight", "plans hit/missed", "violations"},
      false);
  for (const PollerReport& p : report.pollers) {
    table.add({number(p.index), p.cpu < 0 ? "-" : std::to_string(p.cpu), std::string(p.idle),
               std::string(p.state), format("%.1f %%", 100 * busy_ratio(p, same_poller(before, p))),
               duration(static_cast<double>(p.longest_turn_ns)), number(p.sleeps),
               number(p.wakeups_by_timeout_with_work), number(p.records), number(p.runs),
               number(p.in_flight), number(p.plan_hits) + "/" + number(p.plan_misses),
               number(p.violations)});
  }
  return "\npollers\n" + (report.pollers.empty() ? "  none\n" : table.text());
}

std::string clients(const StatReport& report) {
  if (report.clients.empty()) return "\nclients\n  none\n";
  TextTable table({"client", "pid", "attached", "channels", "regions", "layouts", "registered",
                   "requests", "completed", "failed", "bytes", "notified", "flags"},
                  true);
  for (const shm::ClientRecord& c : report.clients) {
    std::string flags;
    if ((c.flags & shm::kClientStalled) != 0) flags += "stalled ";
    if ((c.flags & shm::kClientDraining) != 0) flags += "draining ";
    if (c.violations != 0) flags += "violations=" + number(c.violations) + " ";
    if (c.deadline_misses != 0) flags += "late=" + number(c.deadline_misses) + " ";
    if (c.cancels != 0) flags += "cancelled=" + number(c.cancels) + " ";
    if (c.torn) flags += "incomplete ";
    if (!flags.empty()) flags.pop_back();
    table.add({printable(c.instance) + "/" + number(c.rank), number(c.pid),
               ago(report, c.attached_wall_ns), number(c.channels), number(c.regions),
               number(c.layouts), size_text(static_cast<double>(c.registered_bytes)),
               number(c.requests), number(c.completed), number(c.failed),
               size_text(static_cast<double>(c.bytes)), number(c.notifications),
               flags.empty() ? "-" : flags});
  }
  return "\nclients\n" + table.text();
}

uint64_t requests_of(const TrafficReport& traffic) {
  uint64_t sum = 0;
  for (const uint64_t count : traffic.completed) sum += count;
  return sum;
}

// Per second since `before`, or "-".
std::string rates(const StatReport& report, const StatReport* before, const TrafficReport& now) {
  if (before == nullptr || report.taken_monotonic_ns <= before->taken_monotonic_ns) return "-";
  TrafficReport then;
  for (const TrafficReport& candidate : before->traffic) {
    if (candidate.transport == now.transport) then = candidate;
  }
  const double elapsed =
      static_cast<double>(report.taken_monotonic_ns - before->taken_monotonic_ns) / 1e9;
  if (then.bytes > now.bytes || requests_of(then) > requests_of(now)) return "-";
  const double requests = static_cast<double>(requests_of(now) - requests_of(then)) / elapsed;
  return size_text(static_cast<double>(now.bytes - then.bytes) / elapsed) + "/s, " +
         format("%.0f requests/s", requests);
}

std::string traffic(const StatReport& report, const StatReport* before) {
  if (report.traffic.empty()) return "\nrequests\n  none\n";
  TextTable table({"requests by", "bytes", "rate", "status"}, true);
  for (const TrafficReport& t : report.traffic) {
    std::string status;
    for (uint32_t code = 0; code < kCodeCount; ++code) {
      if (t.completed[code] == 0) continue;
      status += (status.empty() ? "" : ", ") + std::string(code_name(static_cast<Code>(code))) +
                " " + number(t.completed[code]);
    }
    table.add({printable(t.name), size_text(static_cast<double>(t.bytes)), rates(report, before, t),
               status.empty() ? "-" : status});
  }
  return "\nrequests\n" + table.text();
}

std::string latency(const StatReport& report) {
  if (report.latency.count == 0) return "";
  TextTable table({"time", "p50", "p99", "p99.9", "longest", "mean", "count"}, false);
  const auto add = [&table](const char* name, const shm::HistogramCopy& h) {
    if (h.count == 0) return;
    table.add(
        {name, duration(static_cast<double>(h.quantile(500))),
         duration(static_cast<double>(h.quantile(990))),
         duration(static_cast<double>(h.quantile(999))), duration(static_cast<double>(h.max_ns)),
         duration(static_cast<double>(h.sum_ns) / static_cast<double>(h.count)), number(h.count)});
  };
  add("seen to completed", report.latency);
  add("seen to posted", report.queue);
  return "\nlatency\n" + table.text();
}

std::string transports(const StatReport& report) {
  if (report.transports.empty()) return "";
  TextTable table({"transport", "level", "available", "about"}, true);
  for (const shm::TransportRecord& t : report.transports) {
    table.add({printable(t.name), number(t.level), t.available ? "yes" : "no",
               printable(t.available ? t.info : t.reason)});
  }
  return "\ntransports\n" + table.text();
}

std::string links(const char* title, const std::vector<shm::LinkRecord>& records) {
  if (records.empty()) return "";
  TextTable table({"name", "state", "bytes in", "bytes out", "errors"}, false);
  for (const shm::LinkRecord& link : records) {
    table.add({printable(link.name), printable(link.state),
               size_text(static_cast<double>(link.bytes_in)),
               size_text(static_cast<double>(link.bytes_out)), number(link.errors)});
  }
  return std::string("\n") + title + "\n" + table.text();
}

std::string counters(const StatReport& report) {
  std::string text;
  for (const shm::CounterRecord& c : report.counters) {
    if (c.value == 0) continue;
    text += "  " + printable(c.name) + (c.labels.empty() ? "" : "{" + printable(c.labels) + "}") +
            " " + number(c.value) + (c.unit.empty() ? "" : " " + printable(c.unit)) + "\n";
  }
  return text.empty() ? "" : "\ncounters\n" + text;
}

std::string errors(const StatReport& report, bool with_times) {
  if (report.errors.empty()) return "\nerrors\n  none\n";
  std::string text = "\nerrors\n";
  for (const shm::ErrorRecord& e : report.errors) {
    text += "  " + shm::error_name(e.error) + " " + printable(e.subject) + ": " +
            printable(e.text) + "\n    " + number(e.count) + (e.count == 1 ? " time" : " times") +
            ", last " + ago(report, e.last_wall_ns) + " ago";
    if (with_times) {
      text += ", first at " + shm::utc_text(e.first_wall_ns) + ", last at " +
              shm::utc_text(e.last_wall_ns);
    }
    text += e.torn ? " (cut off)\n" : "\n";
  }
  return text;
}

}  // namespace

std::string text_report(const StatReport& report, const StatReport* before) {
  if (before != nullptr && before->identity.incarnation != report.identity.incarnation) {
    before = nullptr;
  }
  return header(report, before) + pollers(report, before) + clients(report) +
         traffic(report, before) + latency(report) + transports(report) +
         links("peers", report.peers) + links("devices", report.devices) + counters(report) +
         errors(report, false);
}

std::string text_errors(const StatReport& report) {
  return header(report, nullptr) + errors(report, true);
}

}  // namespace wherry::tools
