// The engine's life: running, draining, stopped; and killed.
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "engine/control/control_thread.h"
#include "engine/control/log.h"
#include "shm/doorbell.h"

namespace wherry::engine {
namespace {

constexpr uint64_t kReleaseTimeoutNs = 10'000'000'000;

}  // namespace

void ControlThread::request(LifeRequest request) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(std::move(request));
  }
  shm::ring_eventfd(parts_.eventfd);
}

void ControlThread::take_requests() {
  std::vector<LifeRequest> requests;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests.swap(requests_);
  }
  for (const LifeRequest& request : requests) carry_out(request);
}

// The first one drains, another one stops.
void ControlThread::take_signal() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const std::string name = info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM";
    log_info("received " + name);
    if (signals_seen_++ == 0) {
      drain(name, context_.config.drain_timeout_ms);
    } else {
      stop("second " + name);
    }
  }
}

void ControlThread::carry_out(const LifeRequest& request) {
  switch (request.kind) {
    case LifeRequest::Kind::kDrain:
      return drain(request.reason, request.timeout_ms);
    case LifeRequest::Kind::kStop:
      return stop(request.reason);
    case LifeRequest::Kind::kKill:
      kill(request.reason);
  }
}

void ControlThread::set_state(shm::EngineState state, const std::string& reason) {
  context_.state = state;
  context_.reason = reason;
  parts_.stats->set_state(state, reason);
  log_info("engine " + context_.config.name + " is " + std::string(engine_state_name(state)) +
           (reason.empty() ? "" : ": " + reason));
  for (const auto& [id, connection] : connections_) {
    if (connection->role == Connection::Role::kNew) continue;
    connection->send(state_event(engine_state_name(state), reason));
  }
}

void ControlThread::drain(const std::string& reason, uint32_t timeout_ms) {
  if (timeout_ms != 0 && !stopping_) {
    context_.timers.add(
        monotonic_ns() + uint64_t{timeout_ms} * 1'000'000, [this, reason, timeout_ms] {
          stop(reason + " (not drained within " + std::to_string(timeout_ms) + " ms)");
        });
  }
  if (context_.state != shm::EngineState::kRunning) return;
  set_state(shm::EngineState::kDraining, reason);
  for (Poller* poller : parts_.pollers)
    poller->send({Command::Kind::kDrain, Code::kDraining, nullptr});
}

void ControlThread::stop(const std::string& reason) {
  if (stopping_) return;
  stopping_ = true;
  if (reason != context_.reason || context_.state != shm::EngineState::kDraining) {
    set_state(shm::EngineState::kDraining, reason);
  }
  parts_.listener.reset();
  for (Poller* poller : parts_.pollers)
    poller->send({Command::Kind::kStop, Code::kAborted, nullptr});
}

void ControlThread::kill(const std::string& reason) {
  set_state(shm::EngineState::kFailed, "killed: " + reason);
  _exit(kKilledExitStatus);
}

GraceList::PollerSet ControlThread::all_pollers() const {
  return (GraceList::PollerSet{1} << parts_.pollers.size()) - 1;
}

void ControlThread::poller_idle(uint32_t poller) {
  idle_ |= GraceList::PollerSet{1} << poller;
  if (idle_ == all_pollers()) stop(context_.reason);
}

void ControlThread::poller_stopped(uint32_t poller) {
  stopped_ |= GraceList::PollerSet{1} << poller;
  context_.grace.stopped(poller);
  if (stopped_ == all_pollers() && !releasing_) release_sessions();
}

// Nobody touches clients' memory any more: say so, then give it back.
void ControlThread::release_sessions() {
  releasing_ = true;
  set_state(shm::EngineState::kStopped, context_.reason);
  const auto sessions = context_.sessions;
  for (const auto& [id, session] : sessions) {
    session->begin_closing({shm::ErrorId::kClientLost, "the engine stops", false, true});
  }
  context_.timers.add(monotonic_ns() + kReleaseTimeoutNs, [this] {
    outcome_ = {Code::kTimedOut, "end: wanted clients' memory released within " +
                                     std::to_string(kReleaseTimeoutNs / 1'000'000'000) +
                                     " s, got some that is not; ended all the same"};
    log_error(outcome_.message());
    ended_ = true;
  });
}

}  // namespace wherry::engine
