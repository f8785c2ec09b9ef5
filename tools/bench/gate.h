// Gate: rounds of a measurement, taken while the machine is quiet.
//
// Two spinning processes on two cores measure the scheduler as soon as anybody else runs. So each
// round waits for a quiet moment; afterwards what others used is worked out from /proc/stat
// (softirq and time stolen by the hypervisor included) less our own processes, and a disturbed
// round is taken again. Patience is limited: when it is used up, disturbed rounds stand in for the
// missing ones, the least disturbed first, and are counted as such. Main thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "shm/status.h"

namespace wherry::bench {

struct GateOptions {
  uint32_t rounds = 5;                    // wanted of each measurement
  uint32_t tries = 8;                     // taken at most
  uint64_t wait_ns = 1'000'000'000;       // for quiet before one round, at most
  uint64_t patience_ns = 12'000'000'000;  // of waiting and of rounds taken in vain, all in all
};

// The values of one round, in an order of the caller's.
using Round = std::vector<double>;

struct Rounds {
  std::vector<Round> rounds;
  uint32_t disturbed = 0;

  std::vector<double> column(size_t index) const;
};

class Gate {
 public:
  // `own`: processes beside this one whose time is ours too.
  Gate(const GateOptions& options, std::vector<pid_t> own);

  // Takes rounds; the first failure of `round` ends it.
  Result<Rounds> measure(const std::function<Result<Round>()>& round);

 private:
  struct Usage {
    uint64_t wall_ns = 0;
    uint64_t busy_ns = 0;  // of all cores
    uint64_t own_ns = 0;
  };
  Usage look() const;
  // Cores' worth of time that others used between two looks.
  static double foreign(const Usage& before, const Usage& after);
  Status wait_for_quiet();
  bool patient() const { return vain_ns_ < options_.patience_ns; }

  const GateOptions options_;
  const std::vector<pid_t> own_;
  uint64_t vain_ns_ = 0;
};

}  // namespace wherry::bench
