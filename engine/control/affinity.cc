#include "engine/control/affinity.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>

#include "engine/control/lock_file.h"
#include "shm/cgroup.h"

namespace wherry::engine {
namespace {

// "0-3,6"
std::string ranges(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cores[i]);
    if (last > i) text += "-" + std::to_string(cores[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

// Cores' worth of time that a group's quota gives; 0 = no quota.
double quota_of(const shm::CgroupDirectory& directory) {
  if (!directory.v2) {
    // Without a quota the file says -1, which is no number here.
    const std::optional<uint64_t> quota =
        shm::read_number_file(directory.path + "/cpu.cfs_quota_us");
    const std::optional<uint64_t> period =
        shm::read_number_file(directory.path + "/cpu.cfs_period_us");
    return quota && period && *period != 0
               ? static_cast<double>(*quota) / static_cast<double>(*period)
               : 0;
  }
  const std::optional<std::string> text = shm::read_small_file(directory.path + "/cpu.max");
  unsigned long long quota = 0;
  unsigned long long period = 0;
  const bool limited =
      text && std::sscanf(text->c_str(), "%llu %llu", &quota, &period) == 2;  // else "max 100000"
  return limited && period != 0 ? static_cast<double>(quota) / static_cast<double>(period) : 0;
}

// Large enough for every core the kernel may know.
struct CpuMask {
  explicit CpuMask(int cores) : bytes(CPU_ALLOC_SIZE(cores)), set(CPU_ALLOC(cores)) {
    CPU_ZERO_S(bytes, set);
  }
  CpuMask(const CpuMask&) = delete;
  CpuMask& operator=(const CpuMask&) = delete;
  ~CpuMask() { CPU_FREE(set); }

  size_t bytes;
  cpu_set_t* set;
};
constexpr int kMaxCores = 8192;

std::string pointer_of(size_t poller) { return "/pollers/" + std::to_string(poller) + "/cpu"; }

// The core that a poller's config names, or a problem.
int resolve(const PollerConfig& poller, size_t index, const CoreSet& cores,
            std::vector<std::string>* problems) {
  if (poller.pin == Pin::kNone) return kNotPinned;
  if (poller.pin == Pin::kOffset) {
    if (poller.cpu < cores.allowed.size()) return cores.allowed[poller.cpu];
    problems->push_back(pointer_of(index) + ": wanted an offset below " +
                        std::to_string(cores.allowed.size()) + " (" + cores.to_string() +
                        "), got \"offset:" + std::to_string(poller.cpu) +
                        "\"; lower it, or allow this process more cores");
    return kNotPinned;
  }
  const int cpu = static_cast<int>(poller.cpu);
  if (std::binary_search(cores.allowed.begin(), cores.allowed.end(), cpu)) return cpu;
  problems->push_back(pointer_of(index) + ": wanted a core that this process may use (" +
                      cores.to_string() + "), got " + std::to_string(cpu) +
                      "; choose one of these, or allow this process that one");
  return kNotPinned;
}

// The core of each poller, and every problem.
std::vector<int> resolve_all(const Config& config, const CoreSet& cores,
                             std::vector<std::string>* problems) {
  std::vector<int> assigned;
  std::map<int, size_t> taken;
  size_t busy = 0;
  for (size_t i = 0; i < config.pollers.size(); ++i) {
    const int cpu = resolve(config.pollers[i], i, cores, problems);
    assigned.push_back(cpu);
    if (config.pollers[i].idle == IdleStrategy::kBusy) ++busy;
    if (cpu == kNotPinned) continue;
    const auto [first, is_new] = taken.emplace(cpu, i);
    if (!is_new) {
      problems->push_back(pointer_of(i) + ": wanted a core of its own, got " + std::to_string(cpu) +
                          ", which " + pointer_of(first->second) + " has; choose another (" +
                          cores.to_string() + ")");
    }
  }
  if (busy > 0 && static_cast<double>(busy + 1) > cores.usable() &&
      !config.allow_oversubscription) {
    problems->push_back("/pollers: wanted one usable core more than busy pollers (" +
                        cores.to_string() + "), got " + std::to_string(busy) +
                        " busy; use adaptive, or set allow_oversubscription");
  }
  return assigned;
}

}  // namespace

double CoreSet::usable() const {
  const double count = std::max<double>(1, static_cast<double>(allowed.size()));
  return quota > 0 ? std::max(1.0, std::min(count, quota)) : count;
}

std::string CoreSet::to_string() const {
  std::string text = (allowed.size() == 1 ? "core " : "cores ") + ranges(allowed);
  if (quota > 0) {
    char limit[64];
    std::snprintf(limit, sizeof(limit), " with a cpu quota of %.4g", quota);
    text += limit;
  }
  return text;
}

Result<CoreSet> usable_cores(const std::string& proc_root, const std::string& cgroup_root) {
  const CpuMask mask(kMaxCores);
  if (sched_getaffinity(0, mask.bytes, mask.set) != 0) {
    return errno_status(Code::kInternal, "reading the cores of this process", errno);
  }
  CoreSet cores;
  for (int cpu = 0; cpu < kMaxCores; ++cpu) {
    if (CPU_ISSET_S(cpu, mask.bytes, mask.set)) cores.allowed.push_back(cpu);
  }
  for (const shm::CgroupDirectory& directory :
       shm::cgroup_directories("cpu", proc_root, cgroup_root)) {
    const double quota = quota_of(directory);
    if (quota > 0) cores.quota = cores.quota > 0 ? std::min(cores.quota, quota) : quota;
  }
  return cores;
}

Result<std::vector<int>> assign_cores(const Config& config, const CoreSet& cores) {
  std::vector<std::string> problems;
  std::vector<int> assigned = resolve_all(config, cores, &problems);
  if (problems.empty()) return assigned;
  std::string message = problems[0];
  for (size_t i = 1; i < problems.size(); ++i) message += "\n" + problems[i];
  return Status(Code::kInvalidArgument, message);
}

std::vector<std::string> core_problems(const Config& config, const CoreSet& cores) {
  std::vector<std::string> problems;
  (void)resolve_all(config, cores, &problems);
  return problems;
}

Result<CoreClaims> CoreClaims::take(const Config& config, const std::vector<int>& cores,
                                    const std::string& run_root,
                                    std::vector<std::string>* warnings) {
  CoreClaims claims;
  for (size_t i = 0; i < cores.size(); ++i) {
    if (cores[i] == kNotPinned) continue;
    const std::string path = run_root + "/cpu-" + std::to_string(cores[i]) + ".lock";
    if (config.pollers[i].idle != IdleStrategy::kBusy) {
      if (!is_locked(path)) continue;
      const shm::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      warnings->push_back(pointer_of(i) + ": core " + std::to_string(cores[i]) +
                          " is claimed by a busy poller of " +
                          describe(fd.valid() ? read_owner(fd.get()) : std::nullopt) +
                          ": this poller will often wait; choose another core");
      continue;
    }
    if (mkdir(run_root.c_str(), 0755) != 0 && errno != EEXIST) {
      return errno_status(Code::kNotPermitted, "making " + run_root + " for the claim of a core",
                          errno);
    }
    Result<shm::UniqueFd> lock = take_lock_file(path);
    if (!lock.ok()) {
      const Code code = lock.code() == Code::kAlreadyExists ? Code::kNotPermitted : lock.code();
      return Status(code, pointer_of(i) + ": claiming core " + std::to_string(cores[i]) + ": " +
                              lock.status().message() + ", choose another core, or use adaptive");
    }
    if (Status status = write_owner(lock->get(), this_process(config.name)); !status.ok())
      return status;
    claims.locks_.push_back(std::move(*lock));
  }
  return claims;
}

Status pin_this_thread(int cpu) {
  if (cpu == kNotPinned) return {};
  const CpuMask wanted(kMaxCores);
  CPU_SET_S(static_cast<size_t>(cpu), wanted.bytes, wanted.set);
  const std::string what = "pinning a thread to core " + std::to_string(cpu);
  if (sched_setaffinity(0, wanted.bytes, wanted.set) != 0)
    return errno_status(Code::kInvalidArgument, what, errno);
  // A cpuset may have been changed meanwhile: the kernel then takes another core without a word.
  const CpuMask got(kMaxCores);
  if (sched_getaffinity(0, got.bytes, got.set) != 0 ||
      !CPU_EQUAL_S(wanted.bytes, wanted.set, got.set)) {
    return {Code::kInvalidArgument,
            what + ": wanted that core alone, got another set; look at the cpuset"};
  }
  return {};
}

}  // namespace wherry::engine
