// What the engine of engine_death_test does at its fault points; the test says it in a FaultPlan.
#include <sys/prctl.h>

#include <csignal>

#include "engine/poller/poller_impl.h"
#include "tests/faults/fault_plan.h"

namespace wherry::engine {
namespace {

using test::FaultPlan;
using test::Order;

FaultPlan* find_plan() {
  // A poller that stands still would outlive a test that is killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* path = std::getenv(FaultPlan::kVariable);
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  FaultPlan* plan = test::map_fault_plan(fd);
  if (plan == nullptr) std::abort();
  close(fd);
  return plan;
}

void spin(uint64_t ns) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t end = now.tv_sec * 1'000'000'000 + now.tv_nsec + static_cast<int64_t>(ns);
  while (now.tv_sec * 1'000'000'000 + now.tv_nsec < end) clock_gettime(CLOCK_MONOTONIC, &now);
}

}  // namespace

void at_fault_point(FaultPoint point, Request* request) {
  static FaultPlan* const kPlan = find_plan();
  const auto order = static_cast<Order>(kPlan->order.load());
  const bool clear_now =
      (order == Order::kClearedBeforePublished && point == FaultPoint::kDrained) ||
      (order == Order::kMarkedAfterCopied && point == FaultPoint::kMarked);
  if (clear_now) request->channel->inflight.clear(request->slot);

  spin(kPlan->stretch_ns.load());
  if (kPlan->stop_at.load() == static_cast<uint32_t>(point) && kPlan->passes.fetch_sub(1) == 1) {
    kPlan->stands.store(1);
    for (;;) pause();
  }

  const bool mark_now = order == Order::kMarkedAfterCopied && point == FaultPoint::kCopied;
  if (mark_now) request->channel->inflight.mark(request->slot, request->id);
}

}  // namespace wherry::engine
