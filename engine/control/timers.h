// Timers: what is to happen at a deadline, of the control thread.
//
// Owned and used by the control thread only; deadlines are CLOCK_MONOTONIC nanoseconds. A timer
// fires once and is gone. Nothing fails.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace wherry::engine {

// CLOCK_MONOTONIC in nanoseconds.
uint64_t monotonic_ns();

class Timers {
 public:
  using Id = std::pair<uint64_t, uint64_t>;  // deadline, number

  Id add(uint64_t deadline_ns, std::function<void()> action) {
    const Id id{deadline_ns, ++last_};
    timers_.emplace(id, std::move(action));
    return id;
  }

  // A timer that has fired or was cancelled is no obstacle.
  void cancel(Id id) { timers_.erase(id); }

  // Fires what is due. An action may add and cancel timers; one added now waits for the next call.
  void run(uint64_t now_ns);

  // Nanoseconds until the next deadline; UINT64_MAX without timers.
  uint64_t until_next(uint64_t now_ns) const;

 private:
  std::map<Id, std::function<void()>> timers_;
  uint64_t last_ = 0;
};

}  // namespace wherry::engine
