#include "engine/control/grace.h"

#include "engine/control/timers.h"
#include "engine/poller/poller.h"

namespace wherry::engine {
namespace {

constexpr uint64_t kPatienceNs = 20'000'000;  // after that a wait is looked at less often
constexpr int kLongIntervalMs = 10;

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

int GraceList::poll_interval_ms(uint64_t now_ns) const {
  if (waits_.empty()) return -1;
  // The newest is last.
  return now_ns - waits_.back().since_ns < kPatienceNs ? 1 : kLongIntervalMs;
}

}  // namespace wherry::engine
