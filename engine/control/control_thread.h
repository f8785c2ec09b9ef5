// ControlThread: the loop that does everything slow, one thing at a time and never waiting for
// anybody.
//
// One epoll set over the listener, connections, clients' pidfds, signals and an eventfd that
// pollers, registrars and requests ring. Owned by the engine; turn() belongs to one thread,
// request() is for any. The parts are in files of their own: control_thread.cc (the loop,
// connections), attach.cc (hello), admin.cc (administration) and life_cycle.cc (states, drain,
// stop, kill).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/control/connection.h"
#include "engine/control/control_context.h"
#include "engine/control/messages.h"
#include "engine/control/session.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

// The exit status of a process ended by `kill`.
inline constexpr int kKilledExitStatus = 5;

// A change of the engine's life, asked for.
struct LifeRequest {
  enum class Kind : uint8_t {
    kDrain,  // no new requests; ends when those there are finished, or with kStop after timeout_ms
    kStop,   // fails what is queued, finishes what is posted
    kKill,   // ends the process at once and completes nothing
  };
  Kind kind = Kind::kDrain;
  std::string reason;
  uint32_t timeout_ms = 0;  // 0 = however long it takes
};

struct ControlParts {
  const Config* config = nullptr;
  uint64_t incarnation = 0;
  shm::UniqueFd listener;
  int eventfd = -1;  // rung by pollers and registrars
  std::vector<Poller*> pollers;
  std::vector<PollerReport> poller_reports;
  std::vector<TransportReport> transports;
  Registrar* registrar = nullptr;
  shm::StatsWriter* stats = nullptr;
  std::atomic<bool>* stats_lost = nullptr;  // set by the SIGBUS handler
  bool handle_signals = false;              // SIGTERM and SIGINT, blocked already
  uint64_t handshake_timeout_ns = 5'000'000'000;
};

class ControlThread {
 public:
  // The engine is running from here on. NO_RESOURCES when descriptors are missing.
  static Result<std::unique_ptr<ControlThread>> create(ControlParts parts);
  ~ControlThread();

  // One turn: waits at most `timeout_ms` (-1 = until something happens), then does what is to be
  // done. False once the engine has ended.
  bool turn(int timeout_ms);

  // Any thread.
  void request(LifeRequest request);

  // Why it ended; OK after a drain or stop, unless something was not released in time. Once turn()
  // was false.
  const Status& outcome() const { return outcome_; }

 private:
  enum class Tag : uint8_t { kListener = 1, kEvent, kSignal, kConnection, kPidfd };

  // A message, and what came of reading it.
  struct Decoded {
    shm::ControlMessage message;
    ControlRequest request;
    Status status;
  };

  explicit ControlThread(ControlParts parts);

  // --- control_thread.cc
  Status watch(int fd, uint32_t events, Tag tag, uint64_t id);
  uint64_t wait_ns(int timeout_ms) const;
  void take_event(uint64_t data, uint32_t events);
  void accept_all();
  void pause_accepting();
  void add_connection(shm::ControlSocket socket);
  bool make_room();
  void read_connection(Connection& connection, uint32_t events);
  void take_message(Connection& connection, shm::ControlMessage message);
  void take_request(Connection& connection, Decoded decoded);
  void take_reports();
  void take_report(const Report& report);
  void tidy_up();
  bool sweep_connections();
  void close_connection(uint64_t id);
  void drop_gone_sessions();
  void beat();

  // --- attach.cc
  void attach(Connection& connection, ReplyTo to, const Hello& hello,
              std::vector<shm::UniqueFd> descriptors);
  Status check_hello(const Hello& hello, const std::vector<shm::UniqueFd>& descriptors) const;
  Status check_name_free(const Hello& hello) const;

  // --- admin.cc
  void administer(Connection& connection, ReplyTo to, const Admin& admin);
  Status check_admin(const Connection& connection) const;
  StatusReport status_report() const;

  // --- life_cycle.cc
  void take_requests();
  void take_signal();
  void carry_out(const LifeRequest& request);
  void set_state(shm::EngineState state, const std::string& reason);
  void drain(const std::string& reason, uint32_t timeout_ms);
  void stop(const std::string& reason);
  [[noreturn]] void kill(const std::string& reason);
  void poller_idle(uint32_t poller);
  void poller_stopped(uint32_t poller);
  void release_sessions();
  GraceList::PollerSet all_pollers() const;

  ControlParts parts_;
  ControlContext context_;
  shm::UniqueFd epoll_;
  shm::UniqueFd signals_;
  shm::UniqueFd own_pidfd_;
  std::optional<gid_t> admin_group_;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t last_connection_ = 0;
  uint64_t last_session_ = 0;
  bool stats_loss_logged_ = false;

  std::mutex mutex_;
  std::vector<LifeRequest> requests_;  // under mutex_

  int signals_seen_ = 0;
  bool stopping_ = false;
  bool releasing_ = false;
  bool ended_ = false;
  GraceList::PollerSet idle_ = 0;
  GraceList::PollerSet stopped_ = 0;
  Status outcome_;
};

}  // namespace wherry::engine
