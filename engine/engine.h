// Engine: puts the parts together: run directory, stats, transports, pollers, registrars, control
// thread.
//
// start() and run(), or run_once(), belong to one thread, the control thread; the requests are for
// any. Pollers have threads of their own, except those with the idle strategy `external`, which the
// caller drives (poller(i)->poll_once()). An engine that is destroyed before it has ended is
// stopped first. Several engines may live in one process (tests); the SIGBUS handler is then common
// to them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/control/affinity.h"
#include "engine/control/config.h"
#include "engine/control/run_dir.h"
#include "engine/poller/poller.h"
#include "engine/transport/transport.h"
#include "shm/file_descriptor.h"
#include "shm/stats_writer.h"
#include "shm/status.h"

namespace wherry::engine {

class ControlThread;
class Registrar;
struct ControlParts;
struct TransportReport;

struct EngineOptions {
  bool allow_null = false;  // the transport `null`, if the config enables it too
  // The first SIGTERM or SIGINT drains with the config's deadline, another one stops. Blocks both
  // in the calling thread, and ignores SIGPIPE and SIGXFSZ in the process.
  bool handle_signals = false;
  ClockFunction clock = nullptr;  // of the pollers; null = CLOCK_MONOTONIC
  void* clock_context = nullptr;
  uint64_t handshake_timeout_ns = 5'000'000'000;
  uint64_t registration_piece_bytes = uint64_t{64} << 20;
};

class Engine {
 public:
  // The engine is running, and clients can attach, when this returns. ALREADY_EXISTS names who has
  // the run directory; other refusals name what is missing.
  static Result<std::unique_ptr<Engine>> start(const Config& config,
                                               const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns when the engine has ended; OK after a drain or stop.
  Status run();

  // One turn of the control loop, which waits at most `timeout_ms` for something to do. False once
  // the engine has ended.
  bool run_once(int timeout_ms);

  // Any thread. No new requests; ends when those accepted are finished, or after the timeout (0 =
  // none) as by request_stop.
  void request_drain(std::chrono::milliseconds timeout, const std::string& reason);
  // Any thread. Fails what is queued, finishes what is posted, ends.
  void request_stop(const std::string& reason);
  // Any thread. Ends the process at once with kKilledExitStatus and completes nothing.
  void request_kill(const std::string& reason);

  Poller* poller(uint32_t index) const { return pollers_[index].get(); }
  uint32_t poller_count() const { return static_cast<uint32_t>(pollers_.size()); }
  const std::string& socket_path() const { return socket_path_; }
  const std::string& run_dir() const { return run_dir_.path(); }
  const shm::StatsWriter& stats() const { return stats_; }

 private:
  Engine(const Config& config, const EngineOptions& options);

  Status start_parts();
  Status claim_cores();
  Status open_stats();
  Status start_transports();
  Status make_pollers();
  Status start_pollers();
  Status start_control();
  Result<shm::UniqueFd> listen();
  void drive_external_pollers();
  void finish();

  const Config config_;
  const EngineOptions options_;
  const uint64_t incarnation_;
  RunDir run_dir_;
  std::string socket_path_;
  std::vector<int> cores_;
  CoreClaims claims_;
  shm::StatsWriter stats_;
  std::atomic<bool> stats_lost_{false};
  shm::UniqueFd eventfd_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Transport*> started_;
  std::vector<TransportReport> transport_reports_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Registrar> registrar_;
  std::unique_ptr<ControlThread> control_;
  bool finished_ = false;
};

}  // namespace wherry::engine
