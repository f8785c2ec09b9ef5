#include "engine/control/grace.h"

#include "engine/control/timers.h"
#include "engine/poller/poller.h"

namespace wherry::engine {
namespace {

// A turn of a poller takes microseconds, waking it some tens, a request at most seconds.
struct Interval {
  uint64_t younger_than_ns;
  uint64_t interval_ns;
};
constexpr Interval kIntervals[] = {
    {1'000'000, 50'000}, {20'000'000, 1'000'000}, {UINT64_MAX, 10'000'000}};

}  // namespace

void GraceList::wait(PollerSet pollers, std::shared_ptr<const View> view,
                     std::function<void()> done) {
  Wait wait;
  for (uint32_t i = 0; i < pollers_.size(); ++i) {
    if ((pollers & ~stopped_ & (PollerSet{1} << i)) != 0) {
      wait.tickets.emplace_back(i, pollers_[i]->begin_grace());
    }
  }
  wait.view = std::move(view);
  wait.done = std::move(done);
  wait.since_ns = monotonic_ns();
  waits_.push_back(std::move(wait));
}

bool GraceList::over(Wait& wait) const {
  while (!wait.tickets.empty()) {
    const auto [poller, ticket] = wait.tickets.back();
    const bool passed =
        (stopped_ & (PollerSet{1} << poller)) != 0 || pollers_[poller]->grace_over(ticket);
    if (!passed) return false;
    wait.tickets.pop_back();
  }
  return wait.view == nullptr || wait.view->use_count() == 0;
}

void GraceList::poll() {
  // What is over is taken out first: an action may add waits, and those are for the next poll.
  std::list<Wait> finished;
  for (auto next = waits_.begin(); next != waits_.end();) {
    const auto wait = next++;
    if (over(*wait)) finished.splice(finished.end(), waits_, wait);
  }
  for (Wait& wait : finished) wait.done();
}

uint64_t GraceList::poll_interval_ns(uint64_t now_ns) const {
  if (waits_.empty()) return UINT64_MAX;
  const uint64_t age = now_ns - waits_.back().since_ns;  // the newest is last
  for (const Interval& interval : kIntervals) {
    if (age < interval.younger_than_ns) return interval.interval_ns;
  }
  return kIntervals[0].interval_ns;
}

}  // namespace wherry::engine
