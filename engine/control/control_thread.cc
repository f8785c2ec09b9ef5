#include "engine/control/control_thread.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <utility>
#include <variant>

#include "engine/control/foreign.h"
#include "engine/control/group.h"
#include "engine/control/log.h"
#include "engine/control/registrar.h"
#include "shm/doorbell.h"
#include "shm/protocol.h"

namespace wherry::engine {
namespace {

constexpr uint64_t kBeatNs = 100'000'000;
constexpr uint64_t kAcceptPauseNs = 100'000'000;
constexpr int kMessagesPerTurn = 16;        // of one connection
constexpr uint64_t kReadingNs = 1'000'000;  // of one connection a turn, but at least one message
constexpr size_t kConnectionsBeyondClients = 64;
constexpr Registrar::Owner kConnectionOwner = Registrar::Owner{1} << 63;  // beside the sessions

constexpr uint64_t kIdBits = 56;

// Sockets, pidfds and a channel of each client must find a descriptor, whatever regions there are.
constexpr uint64_t kOwnDescriptors = 64;
constexpr uint64_t kDescriptorsOfClient = 8;

uint64_t descriptors_for_regions(uint64_t clients) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  const uint64_t kept = kOwnDescriptors + kDescriptorsOfClient * clients;
  return limit.rlim_cur - std::min<uint64_t>(kept, limit.rlim_cur / 2);
}

// A session that is ending is answered no more.
bool serves(const Connection& connection) {
  return connection.session == nullptr || connection.session->state() == Session::State::kActive;
}

// Whether its next message is wanted now.
bool reads(const Connection& connection) {
  return !connection.decoding && !connection.behind && serves(connection);
}

}  // namespace

Result<std::unique_ptr<ControlThread>> ControlThread::create(ControlParts parts) {
  std::unique_ptr<ControlThread> control(new ControlThread(std::move(parts)));
  control->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  control->own_pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!control->epoll_.valid() || !control->own_pidfd_.valid()) {
    return errno_status(Code::kNoResources, "starting the control thread", errno);
  }
  if (control->parts_.handle_signals) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    control->signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!control->signals_.valid()) {
      return errno_status(Code::kNoResources, "watching for signals", errno);
    }
    if (Status status = control->watch(control->signals_.get(), EPOLLIN, Tag::kSignal, 0);
        !status.ok()) {
      return status;
    }
  }
  for (const auto& [fd, tag] : {std::pair(control->parts_.listener.get(), Tag::kListener),
                                std::pair(control->parts_.eventfd, Tag::kEvent)}) {
    if (Status status = control->watch(fd, EPOLLIN, tag, 0); !status.ok()) return status;
  }
  if (!control->parts_.config->admin_group.empty()) {
    Result<gid_t> group = group_id(control->parts_.config->admin_group);
    if (!group.ok()) return group.status().with_context("admin_group");
    control->admin_group_ = *group;
  }
  control->set_state(shm::EngineState::kRunning, "");
  control->beat();
  return control;
}

ControlThread::ControlThread(ControlParts parts)
    : parts_(std::move(parts)), context_(*parts_.config, parts_.registrar) {
  context_.incarnation = parts_.incarnation;
  context_.start_ns = monotonic_ns();
  context_.poller_reports = parts_.poller_reports;
  context_.transports = parts_.transports;
  context_.pollers = parts_.pollers;
  context_.channels_of_poller.resize(parts_.pollers.size());
  context_.grace.set_pollers(parts_.pollers);
  context_.stats = parts_.stats;
  context_.mappings.leave_descriptors(descriptors_for_regions(context_.config.limits.clients));
}

ControlThread::~ControlThread() = default;

Status ControlThread::watch(int fd, uint32_t events, Tag tag, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(tag) << kIdBits | id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return errno_status(Code::kNoResources, "watching a descriptor", errno);
}

uint64_t ControlThread::wait_ns(int timeout_ms) const {
  const uint64_t now = monotonic_ns();
  uint64_t wait = timeout_ms < 0 ? UINT64_MAX : static_cast<uint64_t>(timeout_ms) * 1'000'000;
  wait = std::min(wait, context_.timers.until_next(now));
  return std::min(wait, context_.grace.poll_interval_ns(now));
}

bool ControlThread::turn(int timeout_ms) {
  if (ended_) return false;
  std::array<epoll_event, 64> events;
  const uint64_t wait = wait_ns(timeout_ms);
  const timespec limit{static_cast<time_t>(wait / 1'000'000'000),
                       static_cast<long>(wait % 1'000'000'000)};
  // Its limit is finer than the milliseconds of epoll_wait.
  int count = epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                           wait == UINT64_MAX ? nullptr : &limit, nullptr);
  if (count < 0 && errno != EINTR) {
    // A container's filter of system calls may not know it.
    const uint64_t milliseconds = std::min<uint64_t>(wait / 1'000'000 + 1, INT_MAX);
    count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                       wait == UINT64_MAX ? -1 : static_cast<int>(milliseconds));
  }
  for (int i = 0; i < count; ++i) take_event(events[i].data.u64, events[i].events);
  take_requests();
  take_reports();
  for (RegistrarResult result; parts_.registrar->take(&result);) {
    if (result.kind == RegistrarResult::Kind::kRan) {
      result.done();
    } else {
      context_.mappings.on_result(result);
    }
  }
  context_.timers.run(monotonic_ns());
  context_.grace.poll();
  tidy_up();
  if (releasing_ && context_.sessions.empty()) ended_ = true;
  if (ended_) connections_.clear();
  return !ended_;
}

void ControlThread::take_event(uint64_t data, uint32_t events) {
  const uint64_t id = data & ((uint64_t{1} << kIdBits) - 1);
  switch (static_cast<Tag>(data >> kIdBits)) {
    case Tag::kListener:
      return accept_all();
    case Tag::kSignal:
      return take_signal();
    case Tag::kEvent: {
      uint64_t rung = 0;
      [[maybe_unused]] const ssize_t ignored = read(parts_.eventfd, &rung, sizeof(rung));
      return;
    }
    case Tag::kConnection: {
      const auto found = connections_.find(id);
      if (found != connections_.end()) read_connection(*found->second, events);
      return;
    }
    case Tag::kPidfd:
      if (Session* session = context_.find_session(id)) {
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->identity().pidfd.get(), nullptr);
        session->begin_closing({shm::ErrorId::kClientLost, "its process ended"});
      }
      return;
  }
}

void ControlThread::accept_all() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Result<std::optional<shm::ControlSocket>> accepted = shm::accept_control(parts_.listener.get());
    if (!accepted.ok()) {
      context_.stats->record_error(shm::ErrorId::kNoResources, "accept",
                                   accepted.status().to_string());
      return pause_accepting();
    }
    if (!accepted->has_value()) return;
    add_connection(std::move(**accepted));
  }
}

// Out of descriptors: the listener stays readable, and looking at it again at once would spin.
void ControlThread::pause_accepting() {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, parts_.listener.get(), nullptr);
  context_.timers.add(monotonic_ns() + kAcceptPauseNs, [this] {
    if (!parts_.listener.valid()) return;
    if (!watch(parts_.listener.get(), EPOLLIN, Tag::kListener, 0).ok()) pause_accepting();
  });
}

void ControlThread::add_connection(shm::ControlSocket socket) {
  Result<shm::PeerCredentials> peer = socket.peer();
  if (!peer.ok()) return;
  if (!make_room()) {
    const std::string reason = "connections: wanted at most " +
                               std::to_string(connections_.size()) +
                               " (limits.clients and some), got one more; close some";
    context_.stats->record_error(shm::ErrorId::kAttachRefused, "connections", reason);
    // The other side may not get to read it: it is closed now.
    [[maybe_unused]] const Status ignored = socket.send(closing_event(reason));
    return;
  }
  socket.discard_with(close_elsewhere);
  const uint64_t id = ++last_connection_;
  auto connection = std::make_unique<Connection>(id, std::move(socket), *peer);
  if (!watch(connection->socket().fd(), EPOLLIN | EPOLLRDHUP, Tag::kConnection, id).ok()) return;
  connection->deadline =
      context_.timers.add(monotonic_ns() + parts_.handshake_timeout_ns, [this, id] {
        const auto found = connections_.find(id);
        if (found == connections_.end() || found->second->role != Connection::Role::kNew) return;
        found->second->send(closing_event("no hello in time"));
        found->second->break_off({Code::kTimedOut, "no hello in time"});
      });
  connections_.emplace(id, std::move(connection));
}

// Whoever has not said who it is gives way, the oldest first: otherwise a few hundred connections
// that say nothing would keep everybody else out. False when all are clients and administrators.
bool ControlThread::make_room() {
  if (connections_.size() < context_.config.limits.clients + kConnectionsBeyondClients) return true;
  for (const auto& [id, connection] : connections_) {
    if (connection->role != Connection::Role::kNew) continue;
    const char* const kReason = "no hello yet, and others want to connect";
    context_.stats->record_error(shm::ErrorId::kAttachRefused, "connections", kReason);
    connection->send(closing_event(kReason));
    close_connection(id);
    return true;
  }
  return false;
}

void ControlThread::read_connection(Connection& connection, uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    connection.behind = false;
    connection.flush();
  }
  const bool hung_up = (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  const uint64_t end = monotonic_ns() + kReadingNs;
  for (int i = 0; i < kMessagesPerTurn && !connection.broken(); ++i) {
    // A session that is ending reads no more, so that its end cannot be put off. One that does not
    // read its replies is not given more of them: each takes memory of the engine's.
    connection.behind = connection.behind || !connection.socket().other_side_reads();
    if (!reads(connection)) {
      if (hung_up) connection.break_off({Code::kUnreachable, "hung up"});
      return;
    }
    Result<std::optional<shm::ControlMessage>> message = connection.socket().receive();
    if (!message.ok()) return connection.break_off(message.status());
    if (!message->has_value()) return;
    close_elsewhere(take_risky((*message)->descriptors));
    take_message(connection, std::move(**message));
    if (monotonic_ns() > end) return;
  }
}

void ControlThread::take_message(Connection& connection, shm::ControlMessage message) {
  const bool is_long = message.text.size() > shm::kMaxInlineBytes;
  if (is_long && connection.session == nullptr) {
    return connection.send(error_reply(
        {0, shm::protocol::kVersion},
        {Code::kInvalidArgument, "control message: wanted at most " +
                                     std::to_string(shm::kMaxInlineBytes) +
                                     " bytes before a hello, got " +
                                     std::to_string(message.text.size()) + "; say hello first"}));
  }
  auto decoded = std::make_shared<Decoded>();
  decoded->message = std::move(message);
  const auto decode = [decoded] {
    decoded->status = decode_request(decoded->message.text, &decoded->request);
  };
  if (!is_long) {
    decode();
    return take_request(connection, std::move(*decoded));
  }
  // Hundreds of thousands of numbers: not here.
  connection.decoding = true;
  const auto go_on = [this, id = connection.id, decoded] {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    found->second->decoding = false;
    if (serves(*found->second)) take_request(*found->second, std::move(*decoded));
  };
  parts_.registrar->run(kConnectionOwner | connection.id, decode, go_on);
}

void ControlThread::take_request(Connection& connection, Decoded decoded) {
  ControlRequest& request = decoded.request;
  const ReplyTo to{request.id, shm::protocol::kVersion};
  if (!decoded.status.ok()) {
    context_.stats->record_error(
        shm::ErrorId::kRequestRefused,
        connection.session != nullptr ? connection.session->identity().name() : "a connection",
        decoded.status.to_string());
    connection.send(error_reply(to, decoded.status));
  } else if (connection.role == Connection::Role::kClient) {
    connection.session->handle(std::move(request), std::move(decoded.message.descriptors));
  } else if (const Admin* admin = std::get_if<Admin>(&request.body)) {
    administer(connection, to, *admin);
  } else if (const Hello* hello = std::get_if<Hello>(&request.body);
             hello != nullptr && connection.role == Connection::Role::kNew) {
    attach(connection, to, *hello, std::move(decoded.message.descriptors));
  } else {
    connection.send(
        error_reply(to, {Code::kInvalidArgument,
                         "control message: wanted a hello, or an admin command, first, got "
                         "something else; say hello first"}));
  }
}

void ControlThread::take_reports() {
  for (Poller* poller : parts_.pollers) {
    for (Report report; poller->take_report(&report);) take_report(report);
  }
}

void ControlThread::take_report(const Report& report) {
  Session* session =
      report.channel == nullptr ? nullptr : context_.find_session(report.channel->session->session);
  switch (report.kind) {
    case Report::Kind::kIdle:
      return poller_idle(report.poller);
    case Report::Kind::kStopped:
      return poller_stopped(report.poller);
    case Report::Kind::kChannelClosed:
      if (session != nullptr) session->channel_closed(report.channel);
      return;
    case Report::Kind::kViolation:
      if (session != nullptr) {
        session->begin_closing({shm::ErrorId::kClientViolation, report.reason, true, true});
      }
      return;
    case Report::Kind::kRegionBroken:
      if (session == nullptr) return;
      context_.stats->record_error(shm::ErrorId::kRegionBroken, session->identity().name(),
                                   "a request met a region whose pages were taken away");
      log_client("client " + session->identity().name() +
                 " used a region whose pages were taken away (MEMORY_FAULT)");
      return;
  }
}

// Closes what broke and drops who is gone; either may bring about more of it.
void ControlThread::tidy_up() {
  while (sweep_connections() || !context_.gone.empty()) drop_gone_sessions();
}

// What was sent in this turn may have found a connection broken, or its buffer full. Whether one
// closed.
bool ControlThread::sweep_connections() {
  bool closed = false;
  for (auto next = connections_.begin(); next != connections_.end();) {
    Connection& connection = *(next++)->second;
    if (connection.broken()) {
      close_connection(connection.id);
      closed = true;
      continue;
    }
    const bool input = reads(connection);
    const bool output = connection.socket().wants_write() || connection.behind;
    if (input == connection.watches_input && output == connection.watches_output) continue;
    epoll_event event{};
    event.events = EPOLLRDHUP | (input ? EPOLLIN : 0u) | (output ? EPOLLOUT : 0u);
    event.data.u64 = static_cast<uint64_t>(Tag::kConnection) << kIdBits | connection.id;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket().fd(), &event);
    connection.watches_input = input;
    connection.watches_output = output;
  }
  return closed;
}

void ControlThread::close_connection(uint64_t id) {
  const auto found = connections_.find(id);
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  context_.timers.cancel(connection->deadline);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket().fd(), nullptr);
  if (connection->session == nullptr) return;
  connection->session->connection_lost();
  const bool unread = connection->failure().code() == Code::kNoResources;
  connection->session->begin_closing(
      {unread ? shm::ErrorId::kClientNotReading : shm::ErrorId::kClientLost,
       unread ? connection->failure().message() : "hung up"});
}

void ControlThread::drop_gone_sessions() {
  for (const uint64_t id : std::exchange(context_.gone, {})) {
    const auto found = context_.sessions.find(id);
    const std::shared_ptr<Session> session = std::move(found->second);
    context_.sessions.erase(found);
    const SessionIdentity& who = session->identity();
    context_.session_of.erase({who.instance, who.rank});
    // Explicitly: the client holds the same open file, so closing ours does not take it out of the
    // set.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, who.pidfd.get(), nullptr);
    for (const auto& [connection_id, connection] : connections_) {
      if (connection->session != session) continue;
      session->connection_lost();
      close_connection(connection_id);
      break;
    }
    log_client("client " + who.name() + " (session " + std::to_string(id) + ") is gone");
  }
}

void ControlThread::beat() {
  parts_.stats->beat();
  for (const auto& [id, session] : context_.sessions) session->watch_reaping();
  context_.timers.add(monotonic_ns() + kBeatNs, [this] { beat(); });
  if (parts_.stats_lost == nullptr || stats_loss_logged_) return;
  if (!parts_.stats_lost->load(std::memory_order_acquire)) return;
  stats_loss_logged_ = true;
  log_error(
      "the stats file lost its pages (truncated, or its file system is full): what is counted "
      "from now on is not seen; restart the engine to get it back");
}

}  // namespace wherry::engine
