// The poller: one data-plane thread's work, a turn at a time.
//
// A turn takes commands, copies and checks records of its channels (admission), lets the scheduler
// post runs to the transports' lanes, polls the lanes, and publishes completions. While awake it
// makes no system call, takes no lock, allocates nothing and logs nothing. Owner: the engine.
// "Control thread" below marks what the control thread may call; poll_once() and run() belong to
// the poller's own thread (with the idle strategy `external`, to whoever drives it).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/poller/channel_spec.h"
#include "engine/poller/commands.h"
#include "engine/poller/idle.h"
#include "engine/transport/transport.h"
#include "shm/stats.h"
#include "shm/status.h"

namespace wherry::engine {

// The clock pollers read: CLOCK_MONOTONIC nanoseconds, or a test's own.
using ClockFunction = uint64_t (*)(void* context);

struct PollerOptions {
  uint32_t index = 0;
  IdleStrategy idle = IdleStrategy::kAdaptive;
  uint64_t spin_ns = 50'000;
  uint64_t sleep_bound_ns = 10'000'000;  // 0 = sleeps are not bounded (stress tests only)
  uint64_t default_deadline_ns = 30'000'000'000;
  uint64_t quantum_bytes = 64 * 1024;  // deficit round robin: what a client may move per turn
  uint64_t streaming_from_bytes =
      64 << 20;  // layouts and regions at least this large are copied past the caches
  ClockFunction clock = nullptr;  // null = CLOCK_MONOTONIC
  void* clock_context = nullptr;
  std::vector<Transport*> transports;  // those enabled and started
  shm::PollerStats* stats = nullptr;   // this poller is the one writer
  int report_eventfd = -1;             // rung after a report
};

class Channel;
class PollerImpl;

class Poller {
 public:
  // Control thread. NO_RESOURCES when descriptors or memory are missing.
  static Result<std::unique_ptr<Poller>> create(const PollerOptions& options);
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Control thread, before any poller runs: lets pollers hand notifications to each other. `all[i]`
  // has index i.
  static void connect(const std::vector<Poller*>& all);

  // Any thread. The pools for a channel, all of whose memory is touched here: slow for large rings.
  static std::shared_ptr<Channel> prepare(ChannelSpec* spec);

  // Control thread. Wakes the poller when it sleeps. `prepared` goes with kAddChannel and spares
  // this call the work; the poller keeps it until it has reported kChannelClosed.
  void send(const Command& command, std::shared_ptr<Channel> prepared = nullptr);

  // Control thread. The next report, if there is one.
  bool take_report(Report* report);

  // Control thread. A grace period: after publishing a new table, take a ticket; once over() says
  // true, the poller can no longer hold anything it read from the old one. begin_grace wakes a
  // sleeping poller.
  uint64_t begin_grace();
  bool grace_over(uint64_t ticket) const;

  // Poller thread: turns until a kStop has been carried out.
  void run();

  // Poller thread: one turn; how many pieces of work it did. Never sleeps.
  uint32_t poll_once();

  uint32_t index() const;

 private:
  explicit Poller(std::unique_ptr<PollerImpl> impl);

  std::unique_ptr<PollerImpl> impl_;
};

}  // namespace wherry::engine
