#include "engine/control/timers.h"

#include <ctime>

namespace wherry::engine {

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void Timers::run(uint64_t now_ns) {
  const uint64_t newest = last_;
  for (auto next = timers_.begin(); next != timers_.end() && next->first.first <= now_ns;) {
    if (next->first.second > newest) {
      ++next;
      continue;
    }
    const std::function<void()> action = std::move(next->second);
    timers_.erase(next);
    action();
    next = timers_.begin();
  }
}

uint64_t Timers::until_next(uint64_t now_ns) const {
  if (timers_.empty()) return UINT64_MAX;
  const uint64_t deadline = timers_.begin()->first.first;
  return deadline > now_ns ? deadline - now_ns : 0;
}

}  // namespace wherry::engine
