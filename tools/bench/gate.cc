#include "tools/bench/gate.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

#include "clientlib/types.h"
#include "tools/bench/interrupt.h"

namespace wherry::bench {
namespace {

constexpr double kQuiet = 0.10;             // of a core: a round may begin
constexpr double kDisturbed = 0.12;         // of a core: the round is taken again
constexpr uint64_t kWindowNs = 60'000'000;  // of a look for quiet; /proc/stat counts in 10 ms

uint64_t cpu_time_ns(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Everything but idle, iowait and guest (which is part of user) of the first line.
uint64_t busy_ns_of_all_cores() {
  std::ifstream stat("/proc/stat");
  std::string label;
  uint64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  stat >> label >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  const auto tick_ns = 1'000'000'000u / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return (user + nice + system + irq + softirq + steal) * tick_ns;
}

}  // namespace

std::vector<double> Rounds::column(size_t index) const {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(round[index]);
  return values;
}

Gate::Gate(const GateOptions& options, std::vector<pid_t> own)
    : options_(options), own_(std::move(own)) {}

Gate::Usage Gate::look() const {
  Usage usage;
  usage.wall_ns = monotonic_ns();
  usage.busy_ns = busy_ns_of_all_cores();
  usage.own_ns = cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID);
  for (const pid_t pid : own_) {
    clockid_t clock = 0;
    if (clock_getcpuclockid(pid, &clock) == 0) usage.own_ns += cpu_time_ns(clock);
  }
  return usage;
}

double Gate::foreign(const Usage& before, const Usage& after) {
  const auto delta = [](uint64_t from, uint64_t to) {
    return static_cast<double>(to) - static_cast<double>(from);
  };
  const double others = delta(before.busy_ns, after.busy_ns) - delta(before.own_ns, after.own_ns);
  return std::max(others, 0.0) / std::max(delta(before.wall_ns, after.wall_ns), 1.0);
}

Status Gate::wait_for_quiet() {
  for (uint64_t waited_ns = 0; patient() && waited_ns < options_.wait_ns;) {
    const Usage before = look();
    const timespec window{0, static_cast<long>(kWindowNs)};
    nanosleep(&window, nullptr);
    if (Status status = check_interrupt(); !status.ok()) return status;
    const Usage after = look();
    if (foreign(before, after) < kQuiet) break;
    waited_ns += after.wall_ns - before.wall_ns;
    vain_ns_ += after.wall_ns - before.wall_ns;
  }
  return {};
}

Result<Rounds> Gate::measure(const std::function<Result<Round>()>& round) {
  std::vector<std::pair<double, Round>> taken;  // with what others used
  uint32_t clean = 0;
  for (uint32_t tries = 0; clean < options_.rounds && tries < options_.tries; ++tries) {
    // Enough rounds, if not clean ones, and no time left to hope for better.
    if (taken.size() >= options_.rounds && !patient()) break;
    if (Status status = check_interrupt(); !status.ok()) return status;
    if (Status status = wait_for_quiet(); !status.ok()) return status;
    const Usage before = look();
    Result<Round> values = round();
    if (!values.ok()) return values.status();
    const Usage after = look();
    const double others = foreign(before, after);
    if (others <= kDisturbed) {
      ++clean;
    } else {
      vain_ns_ += after.wall_ns - before.wall_ns;
    }
    taken.emplace_back(others, std::move(*values));
  }
  std::sort(taken.begin(), taken.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  taken.resize(std::min<size_t>(taken.size(), options_.rounds));
  Rounds result;
  for (auto& [others, values] : taken) {
    result.disturbed += others > kDisturbed ? 1 : 0;
    result.rounds.push_back(std::move(values));
  }
  return result;
}

}  // namespace wherry::bench
