// Cores: which ones this process may use, where pollers run, and the claims of busy pollers.
//
// Control thread at start, except pin_this_thread. Everything is decided from a CoreSet, so that
// tests give their own. Refusals are INVALID_ARGUMENT (the config does not fit the host) or
// NOT_PERMITTED (somebody else holds the core) and name what is allowed or who has it.
#pragma once

#include <string>
#include <vector>

#include "engine/control/config.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

// The cores this process may use.
struct CoreSet {
  std::vector<int> allowed;  // ascending; affinity mask and cpuset together
  double quota = 0;          // cores' worth of time by the cgroup's cpu quota; 0 = no quota

  // Cores that can be busy at once: the allowed ones, cut by the quota, at least 1.
  double usable() const;
  std::string to_string() const;  // "cores 0-3,6 and a quota of 2.5 cores"
};

// Of this process: sched_getaffinity, which the kernel has already cut by the cpuset, and the
// smallest cpu quota of its cgroup and all ancestors (v2 and v1). The roots are for tests.
Result<CoreSet> usable_cores(const std::string& proc_root = "/proc",
                             const std::string& cgroup_root = "/sys/fs/cgroup");

inline constexpr int kNotPinned = -1;

// The core of each poller (kNotPinned = none), with offsets resolved. Refuses a core outside the
// set, an offset past its end, one core twice, and busy pollers + 1 above what is usable, unless
// the config has allow_oversubscription. Reports every problem, one line each.
Result<std::vector<int>> assign_cores(const Config& config, const CoreSet& cores);
std::vector<std::string> core_problems(const Config& config, const CoreSet& cores);

// Claims of cores, host-wide, for the life of this object: a lock file each, `<run
// root>/cpu-<n>.lock`.
class CoreClaims {
 public:
  // Claims the cores of busy pollers; NOT_PERMITTED names the owner of one that is taken. The
  // others share: `warnings` gets a line for each that is pinned to a core which somebody claimed.
  // A run root that does not exist is made, mode 0755.
  static Result<CoreClaims> take(const Config& config, const std::vector<int>& cores,
                                 const std::string& run_root, std::vector<std::string>* warnings);

 private:
  std::vector<shm::UniqueFd> locks_;
};

// The calling thread, now and verified. `cpu` kNotPinned does nothing.
Status pin_this_thread(int cpu);

}  // namespace wherry::engine
