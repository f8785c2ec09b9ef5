#include "engine/control/session.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "engine/control/join.h"
#include "engine/control/log.h"
#include "engine/control/random.h"

namespace wherry::engine {

Session::Session(ControlContext* context, SessionIdentity identity, Connection* connection,
                 shm::ClientRow* row)
    : context_(context),
      identity_(std::move(identity)),
      limits_(context->config.limits_of(identity_.instance)),
      connection_(connection),
      row_(row),
      attached_ns_(monotonic_ns()),
      shared_(std::make_shared<SessionShared>()),
      handles_(static_cast<uint32_t>(random_u64())),
      table_(handles_.snapshot()) {
  shared_->session = identity_.session;
  shared_->table.store(table_.get(), std::memory_order_release);
  auto view = std::make_shared<View>();
  view->id = ++context_->last_view_id;
  view->kind = ViewKind::kClient;
  view->owner = shared_;
  client_view_ = std::move(view);
}

Session::~Session() = default;

void Session::handle(ControlRequest request, Descriptors descriptors) {
  const ReplyTo to{request.id, identity_.protocol};
  if (request.version != identity_.protocol) {
    return refuse(to, {Code::kVersionMismatch,
                       "control message: wanted protocol version " +
                           std::to_string(identity_.protocol) + " as agreed in the hello, got " +
                           std::to_string(request.version) + "; use the agreed one"});
  }
  const size_t wanted = std::holds_alternative<RegisterRegion>(request.body) ? 1 : 0;
  if (descriptors.size() != wanted) {
    return refuse(
        to, {Code::kInvalidArgument,
             "control message: wanted " + std::to_string(wanted) + " descriptors with it, got " +
                 std::to_string(descriptors.size()) + "; send what shm/protocol.h says"});
  }
  if (Status status = refuse_when_draining(request.body); !status.ok()) return refuse(to, status);
  std::visit(
      [&](const auto& message) {
        if constexpr (std::is_same_v<std::decay_t<decltype(message)>, RegisterRegion>) {
          on(to, message, std::move(descriptors));
        } else {
          on(to, message);
        }
      },
      request.body);
}

Status Session::refuse_when_draining(const RequestBody& body) const {
  if (context_->state == shm::EngineState::kRunning) return {};
  const bool is_new_work =
      std::holds_alternative<OpenChannel>(body) || std::holds_alternative<ChannelMapped>(body) ||
      std::holds_alternative<RegisterRegion>(body) ||
      std::holds_alternative<RegisterLayout>(body) || std::holds_alternative<Publish>(body) ||
      std::holds_alternative<FindLayout>(body) || std::holds_alternative<FindClient>(body);
  if (!is_new_work) return {};
  return {Code::kDraining, "engine " + context_->config.name +
                               ": wanted a running engine, got one that drains (" +
                               context_->reason + "); attach again when it is back"};
}

void Session::reply(std::string text, Descriptors descriptors) {
  if (connection_ != nullptr) connection_->send(std::move(text), std::move(descriptors));
}

void Session::refuse(ReplyTo to, const Status& status) {
  const bool ordinary = status.code() == Code::kUnknownInstance ||
                        status.code() == Code::kAborted || status.code() == Code::kDraining;
  if (!ordinary) {
    context_->stats->record_error(shm::ErrorId::kRequestRefused, identity_.name(),
                                  status.to_string());
  }
  reply(error_reply(to, status));
}

Status Session::limit_reached(const char* key, uint64_t limit, uint64_t used) const {
  return {Code::kNoResources, std::string("limits.") + key + ": wanted one more, got a limit of " +
                                  std::to_string(limit) + " and " + std::to_string(used) +
                                  " in use; release some or raise the limit"};
}

void Session::end_work() {
  --under_way_;
  update_row();
  advance_closing();
}

GraceList::PollerSet Session::pollers() const {
  GraceList::PollerSet set = 0;
  for (const auto& [index, record] : channels_) {
    if (record->state != ChannelRecord::State::kOffered)
      set |= GraceList::PollerSet{1} << record->poller;
  }
  return set;
}

// Makes the handles as they are now what pollers see; `done` runs when none can see the former
// table.
void Session::publish_table(std::function<void()> done) {
  std::shared_ptr<const ClientTable> former = std::exchange(table_, handles_.snapshot());
  shared_->table.store(table_.get(), std::memory_order_release);
  begin_work();
  context_->grace.wait(pollers(), nullptr,
                       [self = shared_from_this(), former, done = std::move(done)] {
                         done();
                         self->end_work();
                       });
}

void Session::update_row() {
  if (state_ == State::kGone) return;  // the row is somebody else's
  row_->channels.store(static_cast<uint32_t>(channels_.size()), std::memory_order_release);
  row_->regions.set(handles_.count(Holding::Kind::kRegion));
  row_->layouts.set(handles_.count(Holding::Kind::kLayout));
  row_->registered_bytes.set(registered_bytes_);
}

void Session::begin_closing(const Ending& ending) {
  if (state_ != State::kActive) return;
  state_ = State::kClosing;
  row_->flags.fetch_or(shm::kClientDraining, std::memory_order_release);
  log_client("client " + identity_.name() + " (session " + std::to_string(identity_.session) +
             ") ends: " + ending.reason);
  if (ending.recorded) context_->stats->record_error(ending.error, identity_.name(), ending.reason);
  if (ending.told) reply(closing_event(ending.reason));
  for (const Exports::Waiter& waiter : context_->exports.remove_waiters(identity_.session)) {
    context_->timers.cancel(waiter.timer);
    refuse({waiter.request, identity_.protocol},
           {Code::kAborted, "find_layout: wanted to wait, got the end of the session (" +
                                ending.reason + "); attach again"});
  }
  revoking_ = true;
  revoke_all([self = shared_from_this()] {
    self->revoking_ = false;
    self->advance_closing();
  });
  close_channels();
  advance_closing();
}

// The last step begins when nothing of the session can be touched through its channels or by
// others.
void Session::advance_closing() {
  if (state_ != State::kClosing || releasing_ || revoking_ || under_way_ != 0 ||
      !channels_.empty()) {
    return;
  }
  releasing_ = true;
  release_everything();
}

void Session::release_everything() {
  const auto self = shared_from_this();
  // Requests of others may still hold the views; each mapping goes when none of them does.
  Join unused([self] {
    Join released([self] {
      self->state_ = State::kGone;
      self->context_->stats->remove_client(self->row_);
      if (self->detaching_) self->reply(ok_reply(self->detach_));
      self->context_->gone.push_back(self->identity_.session);
    });
    self->handles_.for_each([&](uint64_t, Holding& holding) {
      if (holding.kind == Holding::Kind::kRegion) {
        self->context_->mappings.release(holding.mapping, released.part());
      }
    });
    released.seal();
  });
  handles_.for_each([&](uint64_t handle, Holding& holding) {
    if (holding.kind == Holding::Kind::kFound) {
      context_->exports.remove_finder(holding.view.get(), {identity_.session, handle});
    } else {
      context_->grace.wait(0, holding.view, unused.part());
    }
  });
  unused.seal();
}

ClientReport Session::report() const {
  ClientReport report;
  report.instance = identity_.instance;
  report.rank = identity_.rank;
  report.session = identity_.session;
  report.pid = identity_.pid;
  report.uid = identity_.uid;
  report.state = state_ == State::kActive ? "active" : "closing";
  report.channels = static_cast<uint32_t>(channels_.size());
  report.regions = handles_.count(Holding::Kind::kRegion);
  report.layouts = handles_.count(Holding::Kind::kLayout);
  report.found = handles_.count(Holding::Kind::kFound);
  report.exports = context_->exports.count(identity_.session);
  report.registered_bytes = registered_bytes_;
  report.attached_ms = (monotonic_ns() - attached_ns_) / 1'000'000;
  return report;
}

void Session::on(ReplyTo to, const ListTransports&) {
  reply(transports_reply(to, context_->transports));
}

void Session::on(ReplyTo to, const Detach&) {
  detaching_ = true;
  detach_ = to;
  begin_closing({shm::ErrorId::kClientLost, "detached", false});
}

void Session::on(ReplyTo to, const Hello&) {
  refuse(to, {Code::kInvalidArgument,
              "hello: wanted one for a connection, got another; open a "
              "connection for each session"});
}

void Session::on(ReplyTo to, const Admin&) {
  refuse(to, {Code::kInvalidArgument,
              "admin: wanted instead of a hello, got it behind one; open a "
              "connection for it"});
}

}  // namespace wherry::engine
