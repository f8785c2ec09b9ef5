// Publishing and finding: layouts and clients that others may name, and taking that back.
#include <map>
#include <utility>

#include "engine/control/join.h"
#include "engine/control/session.h"

namespace wherry::engine {
namespace {

std::shared_ptr<const View> copy_of(const View& view, uint64_t id) {
  auto copy = std::make_shared<View>();
  copy->id = id;
  copy->kind = view.kind;
  copy->geometry = view.geometry;
  copy->parts = view.parts;
  copy->owner = view.owner;
  copy->mappings = view.mappings;
  finish_view(*copy);
  return copy;
}

Status taken_back(const char* request) {
  return {Code::kStale, std::string(request) +
                            ": wanted what was there a moment ago, got it taken back meanwhile; "
                            "find it again"};
}

}  // namespace

void Session::on(ReplyTo to, const Publish& message) {
  Result<Holding*> layout = own(message.layout, Holding::Kind::kLayout, "layout");
  if (!layout.ok()) return refuse(to, layout.status());
  if (message.writable && ((*layout)->rights & kRightWrite) == 0) {
    return refuse(to,
                  {Code::kNotPermitted,
                   "publish: wanted a layout in writable regions for the right read_write, got one "
                   "in a region registered for reading only; publish it as read"});
  }
  const ExportKey key{identity_.instance, identity_.rank, message.tier};
  Export entry;
  entry.session = identity_.session;
  entry.layout = message.layout;
  entry.incarnation = identity_.incarnation;
  entry.view = copy_of(*(*layout)->view, ++context_->last_view_id);
  entry.rights = static_cast<uint8_t>(message.writable ? kRightRead | kRightWrite : kRightRead);
  entry.to_all = message.to_all;
  entry.to = message.to;
  if (Status status = context_->exports.publish(key, std::move(entry)); !status.ok()) {
    return refuse(to, status);
  }
  reply(ok_reply(to));
  for (const Exports::Waiter& waiter : context_->exports.take_waiters(key)) {
    context_->timers.cancel(waiter.timer);
    if (Session* finder = context_->find_session(waiter.session))
      finder->end_wait(waiter.request, key);
  }
}

void Session::on(ReplyTo to, const Unpublish& message) {
  Result<Holding*> layout = own(message.layout, Holding::Kind::kLayout, "layout");
  if (!layout.ok()) return refuse(to, layout.status());
  const auto views = context_->exports.withdraw(identity_.session, message.layout);
  if (views.empty()) {
    return refuse(to, {Code::kInvalidArgument, "unpublish: wanted a published layout, got " +
                                                   std::to_string(message.layout) +
                                                   ", which is not; publish it first"});
  }
  begin_work();
  Join taken_back([self = shared_from_this(), to] {
    self->reply(ok_reply(to));
    self->end_work();
  });
  for (const auto& view : views) revoke(view, taken_back.part());
  taken_back.seal();
}

void Session::on(ReplyTo to, const FindLayout& message) {
  const ExportKey key{message.instance, message.rank, message.tier};
  if (context_->exports.find(key) != nullptr) return finish_find(to, key);
  if (message.timeout_ms == 0) return find_failed(to, key, 0);
  const uint32_t used = handles_.count(Holding::Kind::kFound) + waiting_finds_;
  if (used >= limits_.found_per_client) {
    return refuse(to, limit_reached("found_per_client", limits_.found_per_client, used));
  }
  ++waiting_finds_;
  // By a number of its own: a client may give one id to several requests.
  Exports::Waiter waiter{++context_->last_wait, identity_.session, to.id, {}};
  waiter.timer = context_->timers.add(monotonic_ns() + uint64_t{message.timeout_ms} * 1'000'000,
                                      [self = shared_from_this(), to, key, number = waiter.number,
                                       timeout_ms = message.timeout_ms] {
                                        self->context_->exports.remove_waiter(key, number);
                                        --self->waiting_finds_;
                                        self->find_failed(to, key, timeout_ms);
                                      });
  context_->exports.add_waiter(key, waiter);
}

void Session::end_wait(uint64_t request, const ExportKey& key) {
  --waiting_finds_;
  finish_find({request, identity_.protocol}, key);
}

void Session::find_failed(ReplyTo to, const ExportKey& key, uint32_t waited_ms) {
  const bool attached = context_->find_session(key.instance, key.rank) != nullptr;
  std::string got = attached ? "a client that has published nothing there" : "no such client";
  if (waited_ms != 0) got += " within " + std::to_string(waited_ms) + " ms";
  refuse(to, {Code::kUnknownInstance, "find_layout " + key.to_string() +
                                          ": wanted a published layout, got " + got +
                                          "; check instance, rank and tier, or wait longer"});
}

// The layout is published.
void Session::finish_find(ReplyTo to, const ExportKey& key) {
  const Export& entry = *context_->exports.find(key);
  if (!entry.permits(identity_.instance)) {
    return refuse(
        to, {Code::kNotPermitted,
             "find_layout " + key.to_string() + ": wanted a layout published to instance " +
                 identity_.instance + ", got one published to others; have its owner add it"});
  }
  const uint32_t used = handles_.count(Holding::Kind::kFound) + waiting_finds_;
  if (used >= limits_.found_per_client) {
    return refuse(to, limit_reached("found_per_client", limits_.found_per_client, used));
  }
  const bool writable = (entry.rights & kRightWrite) != 0;
  const uint64_t handle = hold_found(entry.view, entry.rights);
  publish_table([self = shared_from_this(), to, handle, view = entry.view, writable,
                 incarnation = entry.incarnation] {
    if (self->handles_.find(handle) == nullptr) return self->refuse(to, taken_back("find_layout"));
    self->reply(found_layout_reply(to, handle, *view, writable, incarnation));
  });
}

void Session::on(ReplyTo to, const FindClient& message) {
  Session* target = context_->find_session(message.instance, message.rank);
  if (target == nullptr || target->state() != State::kActive) {
    return refuse(to, {Code::kUnknownInstance,
                       "find_client " + message.instance + "/" + std::to_string(message.rank) +
                           ": wanted an attached client, got none; check instance and rank"});
  }
  const uint32_t used = handles_.count(Holding::Kind::kFound) + waiting_finds_;
  if (used >= limits_.found_per_client) {
    return refuse(to, limit_reached("found_per_client", limits_.found_per_client, used));
  }
  const uint64_t handle = hold_found(target->client_view_, kRightRead | kRightWrite);
  publish_table(
      [self = shared_from_this(), to, handle, incarnation = target->identity_.incarnation] {
        if (self->handles_.find(handle) == nullptr) {
          return self->refuse(to, taken_back("find_client"));
        }
        self->reply(found_client_reply(to, handle, incarnation));
      });
}

uint64_t Session::hold_found(std::shared_ptr<const View> view, uint8_t rights) {
  const View* key = view.get();
  Holding holding;
  holding.kind = Holding::Kind::kFound;
  holding.rights = rights;
  holding.view = std::move(view);
  const uint64_t handle = handles_.add(std::move(holding));
  context_->exports.add_finder(key, {identity_.session, handle});
  return handle;
}

void Session::on(ReplyTo to, const ReleaseFound& message) {
  const uint64_t handle = message.handle;
  Result<Holding*> found = own(handle, Holding::Kind::kFound, "found layout or client");
  if (!found.ok()) return refuse(to, found.status());
  handles_.retire(handle);
  publish_table([self = shared_from_this(), to, handle] {
    // A finder until here: an owner that takes the layout back meanwhile waits for this table too.
    self->context_->exports.remove_finder(self->handles_.at(handle).view.get(),
                                          {self->identity_.session, handle});
    self->handles_.erase(handle);
    self->reply(ok_reply(to));
  });
}

// Takes a view out of the tables of all who found it; `done` runs when no request uses it either.
void Session::revoke(const std::shared_ptr<const View>& view, std::function<void()> done) {
  Join lost(
      [context = context_, view, done = std::move(done)] { context->grace.wait(0, view, done); });
  std::map<uint64_t, std::vector<uint64_t>> handles_of;
  for (const Exports::Finder& finder : context_->exports.take_finders(view.get())) {
    handles_of[finder.session].push_back(finder.handle);
  }
  for (const auto& [session, handles] : handles_of) {
    if (Session* finder = context_->find_session(session)) finder->lose_found(handles, lost.part());
  }
  lost.seal();
}

void Session::revoke_all(std::function<void()> done) {
  Join revoked(std::move(done));
  for (const auto& view : context_->exports.withdraw_all(identity_.session)) {
    revoke(view, revoked.part());
  }
  revoke(client_view_, revoked.part());
  revoked.seal();
}

void Session::lose_found(const std::vector<uint64_t>& handles, std::function<void()> done) {
  std::vector<uint64_t> lost;
  for (const uint64_t handle : handles) {
    if (handles_.find(handle) == nullptr) continue;  // being released already
    handles_.retire(handle);
    lost.push_back(handle);
  }
  if (!lost.empty()) reply(stale_event(lost));
  publish_table([self = shared_from_this(), lost, done = std::move(done)] {
    for (const uint64_t handle : lost) self->handles_.erase(handle);
    done();
  });
}

}  // namespace wherry::engine
