// GraceList: what the control thread puts off until no poller can hold what was taken out of a
// table.
//
// Owned and used by the control thread. An entry is over when every poller it waits for has passed
// its ticket and its view, if it has one, is used by no request. Pollers that have stopped are
// waited for no longer. Nothing fails.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "engine/tables.h"

namespace wherry::engine {

class Poller;

class GraceList {
 public:
  using PollerSet = uint32_t;  // bit i = poller i
  static_assert(kMaxPollers <= 32);

  // Before any wait; `pollers[i]` has index i.
  void set_pollers(std::vector<Poller*> pollers) { pollers_ = std::move(pollers); }

  // Runs `done` from a later poll(), once each of `pollers` has passed a grace period that begins
  // now and `view` (may be null) is unused.
  void wait(PollerSet pollers, std::shared_ptr<const View> view, std::function<void()> done);

  // That poller touches nothing any more.
  void stopped(uint32_t poller) { stopped_ |= PollerSet{1} << poller; }

  // Runs what is over. An action may wait for more.
  void poll();

  bool empty() const { return waits_.empty(); }

  // How soon to look again: at once for what began just now, later for what takes long (requests
  // that use a view may run for seconds). UINT64_MAX when nothing waits.
  uint64_t poll_interval_ns(uint64_t now_ns) const;

 private:
  struct Wait {
    std::vector<std::pair<uint32_t, uint64_t>> tickets;  // poller, ticket
    std::shared_ptr<const View> view;
    std::function<void()> done;
    uint64_t since_ns = 0;
  };

  bool over(Wait& wait) const;

  std::vector<Poller*> pollers_;
  PollerSet stopped_ = 0;
  std::list<Wait> waits_;
};

}  // namespace wherry::engine
