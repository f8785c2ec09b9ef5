#include "engine/engine.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <future>
#include <system_error>
#include <utility>

#include "engine/control/control_thread.h"
#include "engine/control/group.h"
#include "engine/control/log.h"
#include "engine/control/random.h"
#include "engine/control/registrar.h"
#include "engine/control/sigbus.h"
#include "engine/transport/registry.h"
#include "shm/control_socket.h"
#include "shm/doorbell.h"
#include "shm/run_root.h"

namespace wherry::engine {
namespace {

void prepare_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a limit on file size must be an error of the call
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // threads started later inherit it
}

}  // namespace

Engine::Engine(const Config& config, const EngineOptions& options)
    : config_(config), options_(options), incarnation_(random_u64()) {}

Result<std::unique_ptr<Engine>> Engine::start(const Config& config, const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(config, options));
  if (options.handle_signals) prepare_signals();
  Result<RunDir> run_dir = RunDir::open(config);
  if (!run_dir.ok()) return run_dir.status();
  engine->run_dir_ = std::move(*run_dir);
  engine->socket_path_ = engine->run_dir_.socket_path();
  for (const std::string& warning : engine->run_dir_.warnings()) log_warning(warning);
  if (engine->run_dir_.taken_over()) {
    log_warning("a former engine of this run directory ended without saying so");
  }
  if (Status status = engine->start_parts(); !status.ok()) {
    if (engine->stats_.address() != nullptr) {
      engine->stats_.set_state(shm::EngineState::kFailed, status.message());
    }
    return status;
  }
  return engine;
}

Status Engine::start_parts() {
  if (Status status = install_sigbus_handler(); !status.ok()) return status;
  if (Status status = claim_cores(); !status.ok()) return status;
  if (Status status = open_stats(); !status.ok()) return status;
  if (Status status = start_transports(); !status.ok()) return status;
  if (Status status = make_pollers(); !status.ok()) return status;
  if (Status status = start_pollers(); !status.ok()) return status;
  return start_control();
}

Status Engine::claim_cores() {
  Result<CoreSet> usable = usable_cores();
  if (!usable.ok()) return usable.status();
  Result<std::vector<int>> cores = assign_cores(config_, *usable);
  if (!cores.ok()) return cores.status();
  cores_ = std::move(*cores);
  std::vector<std::string> warnings;
  Result<CoreClaims> claims = CoreClaims::take(config_, cores_, shm::run_root(), &warnings);
  if (!claims.ok()) return claims.status();
  claims_ = std::move(*claims);
  for (const std::string& warning : warnings) log_warning(warning);
  return {};
}

Status Engine::open_stats() {
  shm::StatsOptions options;
  options.engine_name = config_.name;
  options.incarnation = incarnation_;
  options.pollers = static_cast<uint32_t>(config_.pollers.size());
  options.clients = config_.limits.clients;
  options.channels_per_client = config_.limits.channels_per_client;
  for (const auto& [instance, limits] : config_.client_limits) {
    options.channels_per_client = std::max(options.channels_per_client, limits.channels_per_client);
  }
  Result<shm::StatsWriter> stats = shm::StatsWriter::create(run_dir_.stats_path(), options);
  if (!stats.ok()) return stats.status();
  stats_ = std::move(*stats);
  if (!stats_.exported_errors().empty()) {
    log_warning("errors of the former engine: " + stats_.exported_errors());
  }
  if (!stats_.export_problem().empty()) {
    log_warning("errors of the former engine are lost: " + stats_.export_problem());
  }
  return guard_range(stats_.address(), stats_.bytes(), &stats_lost_);
}

Status Engine::start_transports() {
  transports_ = make_transports(config_.transports, static_cast<uint32_t>(config_.pollers.size()),
                                options_.allow_null);
  for (uint8_t i = 1; i < kTransportIds; ++i) {
    const auto id = static_cast<TransportId>(i);
    TransportReport report;
    report.name = transport_name(id);
    report.reason = id == TransportId::kMemory ? "disabled by transports.memory.enabled"
                    : id == TransportId::kNull ? "for benchmarks only; not enabled"
                                               : "not in this release";
    const auto found = std::find_if(transports_.begin(), transports_.end(),
                                    [id](const auto& transport) { return transport->id() == id; });
    if (found != transports_.end()) {
      Transport& transport = **found;
      const Availability availability = transport.available();
      report.level = static_cast<uint32_t>(transport.level());
      report.available = availability.available;
      report.reason = availability.reason;
      if (availability.available) {
        if (Status status = transport.start(); !status.ok()) {
          report.available = false;
          report.reason = status.message();
          stats_.record_error(shm::ErrorId::kTransportFailed, report.name, status.to_string());
        } else {
          started_.push_back(&transport);
        }
      }
      report.info = transport.info();
    }
    stats_.set_transport(i, report.name, report.level, report.available, report.reason,
                         report.info);
    transport_reports_.push_back(std::move(report));
  }
  if (!started_.empty()) return {};
  return {Code::kNoTransport, "transports: wanted at least one available, got none; enable memory"};
}

Status Engine::make_pollers() {
  Result<shm::UniqueFd> eventfd = shm::create_eventfd();
  if (!eventfd.ok()) return eventfd.status();
  eventfd_ = std::move(*eventfd);
  std::vector<Poller*> all;
  for (uint32_t i = 0; i < config_.pollers.size(); ++i) {
    const PollerConfig& poller_config = config_.pollers[i];
    PollerOptions options;
    options.index = i;
    options.idle = poller_config.idle;
    options.spin_ns = uint64_t{poller_config.spin_us} * 1000;
    options.default_deadline_ns = uint64_t{config_.default_deadline_ms} * 1'000'000;
    options.quantum_bytes = config_.transports.memory.piece_bytes;
    options.streaming_from_bytes = config_.transports.memory.streaming_from_bytes;
    options.clock = options_.clock;
    options.clock_context = options_.clock_context;
    options.transports = started_;
    options.stats = stats_.add_poller(i, cores_[i], static_cast<uint32_t>(poller_config.idle));
    options.report_eventfd = eventfd_.get();
    Result<std::unique_ptr<Poller>> poller = Poller::create(options);
    if (!poller.ok()) return poller.status();
    pollers_.push_back(std::move(*poller));
    all.push_back(pollers_.back().get());
  }
  Poller::connect(all);
  return {};
}

Status Engine::start_pollers() {
  for (uint32_t i = 0; i < pollers_.size(); ++i) {
    if (config_.pollers[i].idle == IdleStrategy::kExternal) continue;
    // Of the thread: it may still be inside set_value() when get() below returns.
    std::promise<Status> pinned;
    std::future<Status> result = pinned.get_future();
    try {
      threads_.emplace_back([this, i, pinned = std::move(pinned)]() mutable {
        pthread_setname_np(pthread_self(), ("wherry-poll-" + std::to_string(i)).c_str());
        Status status = pin_this_thread(cores_[i]);
        const bool good = status.ok();
        pinned.set_value(std::move(status));
        if (good) pollers_[i]->run();
      });
    } catch (const std::system_error& error) {
      return errno_status(Code::kNoResources, "starting a poller thread", error.code().value());
    }
    if (Status status = result.get(); !status.ok()) return status;
  }
  return {};
}

Result<shm::UniqueFd> Engine::listen() {
  // Nobody else gets in before owner and mode are as they should be.
  Result<shm::UniqueFd> listener = shm::listen_control(socket_path_, S_IRUSR | S_IWUSR);
  if (!listener.ok()) return listener;
  if (!config_.socket.group.empty()) {
    Result<gid_t> group = group_id(config_.socket.group);
    if (!group.ok()) return group.status().with_context("socket.group");
    if (chown(socket_path_.c_str(), static_cast<uid_t>(-1), *group) != 0) {
      return errno_status(Code::kNotPermitted,
                          "giving " + socket_path_ + " to group " + config_.socket.group, errno);
    }
  }
  if (chmod(socket_path_.c_str(), config_.socket.mode) != 0) {
    return errno_status(Code::kNotPermitted, "setting the mode of " + socket_path_, errno);
  }
  return listener;
}

Status Engine::start_control() {
  RegistrarOptions registrar_options;
  registrar_options.threads = config_.registrars;
  registrar_options.piece_bytes = options_.registration_piece_bytes;
  registrar_options.transports = started_;
  registrar_options.result_eventfd = eventfd_.get();
  Result<std::unique_ptr<Registrar>> registrar = Registrar::start(registrar_options);
  if (!registrar.ok()) return registrar.status();
  registrar_ = std::move(*registrar);
  Result<shm::UniqueFd> listener = listen();
  if (!listener.ok()) return listener.status();

  ControlParts parts;
  parts.config = &config_;
  parts.incarnation = incarnation_;
  parts.listener = std::move(*listener);
  parts.eventfd = eventfd_.get();
  for (uint32_t i = 0; i < pollers_.size(); ++i) {
    parts.pollers.push_back(pollers_[i].get());
    parts.poller_reports.push_back(
        {cores_[i], std::string(idle_strategy_name(config_.pollers[i].idle))});
  }
  parts.transports = transport_reports_;
  parts.registrar = registrar_.get();
  parts.stats = &stats_;
  parts.stats_lost = &stats_lost_;
  parts.handle_signals = options_.handle_signals;
  parts.handshake_timeout_ns = options_.handshake_timeout_ns;
  Result<std::unique_ptr<ControlThread>> control = ControlThread::create(std::move(parts));
  if (!control.ok()) return control.status();
  control_ = std::move(*control);
  log_info("listening at " + socket_path_);
  return {};
}

Status Engine::run() {
  while (run_once(-1)) {
  }
  return control_->outcome();
}

bool Engine::run_once(int timeout_ms) {
  if (control_->turn(timeout_ms)) return true;
  finish();
  return false;
}

void Engine::request_drain(std::chrono::milliseconds timeout, const std::string& reason) {
  control_->request({LifeRequest::Kind::kDrain, reason, static_cast<uint32_t>(timeout.count())});
}

void Engine::request_stop(const std::string& reason) {
  control_->request({LifeRequest::Kind::kStop, reason, 0});
}

void Engine::request_kill(const std::string& reason) {
  control_->request({LifeRequest::Kind::kKill, reason, 0});
}

// Nobody else drives them any more.
void Engine::drive_external_pollers() {
  for (uint32_t i = 0; i < pollers_.size(); ++i) {
    if (config_.pollers[i].idle == IdleStrategy::kExternal) pollers_[i]->poll_once();
  }
}

void Engine::finish() {
  if (finished_) return;
  finished_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  registrar_.reset();
  for (Transport* transport : started_) transport->stop();
  claims_ = CoreClaims();  // before the lock: the next engine may start from then on
  run_dir_.close();
}

Engine::~Engine() {
  if (control_ != nullptr) {
    request_stop("the engine object is destroyed");
    while (run_once(1)) drive_external_pollers();
  } else {
    // start() failed: pollers that run already have nothing to do.
    for (const std::unique_ptr<Poller>& poller : pollers_) {
      poller->send({Command::Kind::kStop, Code::kAborted, nullptr});
    }
    finish();
  }
  // Sessions refer to what follows.
  control_.reset();
  registrar_.reset();
  pollers_.clear();
  if (stats_.address() != nullptr) unguard_range(stats_.address());
}

}  // namespace wherry::engine
