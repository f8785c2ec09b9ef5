// The turn: commands, channels, runs, completions, wake-ups; and sleeping between turns.
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "engine/poller/fault_point.h"
#include "engine/poller/poller_impl.h"
#include "shm/doorbell.h"
#include "shm/relax.h"

namespace wherry::engine {
namespace {

bool has_news(const Channel* channel) {
  return channel->state == Channel::State::kClosing ||
         (channel->state == Channel::State::kActive &&
          (channel->submissions.ready() || channel->cancel_waiting()));
}

uint32_t current_cpu() { return static_cast<uint32_t>(sched_getcpu()); }

// Stored only when it changes: the line holds the channel's state, which the client reads.
void say_cpu(Channel* channel, uint32_t cpu) {
  std::atomic<uint32_t>& said = channel->words->cpu;
  // relaxed: a hint.
  if (said.load(std::memory_order_relaxed) != cpu) said.store(cpu, std::memory_order_relaxed);
}

}  // namespace

uint32_t PollerImpl::poll_once() {
  now_ = clock();
  return turn();
}

// At the time now_.
uint32_t PollerImpl::turn() {
  just_looked_ = false;
  if (turn_begin_ns_ != 0) count_turn(now_);
  turn_begin_ns_ = now_;
  uint32_t work = take_commands();
  work += scan_channels();
  work += take_inbox();
  work += schedule();
  work += poll_lanes();
  check_ends();
  flush_wakes();
  end_turn(work);
  return work;
}

void PollerImpl::end_turn(uint32_t work) {
  turn_worked_ = work != 0;
  shm::PollerStats& stats = *options.stats;
  stats.turns.add(1);
  if (work != 0) {
    stats.in_flight.set(live_);
    stats.plan_hits.set(plans_.hits());
    stats.plan_misses.set(plans_.misses());
  }
  if (!pending_reports_.empty()) flush_reports();
  // Release: what this turn read of a client's table was read before.
  epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// A turn lasts until the next one begins, or the poller sleeps: one look at the clock does for
// both.
void PollerImpl::count_turn(uint64_t end_ns) {
  const uint64_t spent = end_ns - turn_begin_ns_;
  shm::PollerStats& stats = *options.stats;
  (turn_worked_ ? stats.busy_ns : stats.idle_ns).add(spent);
  if (spent > stats.longest_turn_ns.get()) stats.longest_turn_ns.set(spent);
  turn_begin_ns_ = 0;
}

// Between two turns without work: looks, cheaply, for what makes the next one worth while. Whether
// a channel has some.
bool PollerImpl::look_around() {
  for (uint32_t look = 0; look < kLooksPerTurn; ++look) {
    shm::relax();
    if (commands_sent.load(std::memory_order_acquire) != commands_taken_) return false;
    if (inbox_sent.load(std::memory_order_acquire) != inbox_taken_) return false;
    if (std::any_of(active_.begin(), active_.end(), has_news)) return true;
    look_at_one_idle_channel();
  }
  return false;
}

uint32_t PollerImpl::take_commands() {
  if (commands_sent.load(std::memory_order_acquire) == commands_taken_) return 0;
  uint32_t taken = 0;
  for (InternalCommand internal; commands.try_dequeue(internal); ++taken) {
    ++commands_taken_;
    switch (internal.command.kind) {
      case Command::Kind::kAddChannel:
        add_channel(internal.channel);
        break;
      case Command::Kind::kCloseChannel:
        for (Channel* channel : channels_) {
          if (channel != nullptr && channel->spec == internal.command.channel) {
            close_channel(channel, internal.command.code);
          }
        }
        break;
      case Command::Kind::kDrain:
        draining_ = true;
        for (Channel* channel : channels_) {
          if (channel == nullptr) continue;
          channel->words->state.store(static_cast<uint32_t>(shm::ChannelState::kDraining),
                                      std::memory_order_release);
          mark_dirty(channel);
        }
        break;
      case Command::Kind::kStop:
        draining_ = true;
        stopping_ = true;
        stop_code_ = internal.command.code;
        for (Channel* channel : channels_) {
          if (channel != nullptr) close_channel(channel, stop_code_);
        }
        break;
    }
  }
  return taken;
}

void PollerImpl::add_channel(Channel* channel) {
  const auto free_slot = std::find(channels_.begin(), channels_.end(), nullptr);
  channel->flow = free_slot == channels_.end()
                      ? nullptr
                      : scheduler_.join(channel->spec->session->session, channel->spec->weight);
  if (channel->flow == nullptr) {
    // More channels than the limits of the config allow: cannot happen, and must not be silent.
    channel->state = Channel::State::kClosed;
    report(Report::Kind::kViolation, channel->spec, "no room for one channel more on this poller");
    report(Report::Kind::kChannelClosed, channel->spec, "");
    return;
  }
  channel->slot = static_cast<uint32_t>(free_slot - channels_.begin());
  *free_slot = channel;
  active_.push_back(channel);
  if (options.idle != IdleStrategy::kExternal && options.idle != IdleStrategy::kBusy) {
    epoll_event event{EPOLLIN | EPOLLET, {.u64 = channel->slot + uint64_t{1}}};
    epoll_ctl(epoll.get(), EPOLL_CTL_ADD, channel->spec->eventfd, &event);
  }
  say_cpu(channel, current_cpu());
  const auto state = draining_ ? shm::ChannelState::kDraining : shm::ChannelState::kActive;
  channel->words->state.store(static_cast<uint32_t>(state), std::memory_order_release);
  mark_dirty(channel);
  if (stopping_) close_channel(channel, stop_code_);
}

// Reads no more of it and ends what it has under way; finish_closing() says when all of that has
// drained.
void PollerImpl::close_channel(Channel* channel, Code code) {
  if (channel->state == Channel::State::kClosing) return;
  channel->state = Channel::State::kClosing;
  activate(channel);
  for (Request& request : channel->requests) {
    if (request.state != Request::State::kFree) end_early(&request, code);
  }
}

void PollerImpl::finish_closing(Channel* channel) {
  channel->state = Channel::State::kClosed;
  channel->publish_head(true);
  channel->words->state.store(static_cast<uint32_t>(shm::ChannelState::kClosed),
                              std::memory_order_release);
  mark_dirty(channel);
  flush_wakes();  // the last time that its memory may be touched
  if (options.idle != IdleStrategy::kExternal && options.idle != IdleStrategy::kBusy) {
    epoll_ctl(epoll.get(), EPOLL_CTL_DEL, channel->spec->eventfd, nullptr);
  }
  channels_[channel->slot] = nullptr;
  scheduler_.leave(channel->flow);
  report(Report::Kind::kChannelClosed, channel->spec, "");
}

uint32_t PollerImpl::scan_channels() {
  uint32_t work = 0;
  for (size_t i = 0; i < active_.size();) {
    Channel* channel = active_[i];
    work += visit(channel);
    const bool closed = channel->state == Channel::State::kClosed;
    const bool idle = channel->quiet_turns >= kQuietTurns && channel->live == 0 &&
                      channel->state == Channel::State::kActive;
    if (!closed && !idle) {
      ++i;
      continue;
    }
    if (idle) {
      channel->active = false;
      idle_channels_.push_back(channel);
    }
    active_[i] = active_.back();
    active_.pop_back();
  }
  look_at_one_idle_channel();
  return work;
}

uint32_t PollerImpl::visit(Channel* channel) {
  if (channel->state == Channel::State::kClosing) {
    if (channel->live == 0) finish_closing(channel);
    return 1;
  }
  if (channel->state != Channel::State::kActive) return 0;
  const uint32_t records = admit_records(channel);
  channel->quiet_turns = records != 0 ? 0 : channel->quiet_turns + 1;
  return records + take_cancels(channel) + expire_deadlines(channel);
}

// Channels that have been quiet for long cost a look in turns only; one with a record is active
// again.
void PollerImpl::look_at_one_idle_channel() {
  if (idle_channels_.empty()) return;
  if (next_idle_ >= idle_channels_.size()) next_idle_ = 0;
  Channel* channel = idle_channels_[next_idle_];
  if (!channel->submissions.ready()) {
    ++next_idle_;
    return;
  }
  activate(channel);
}

void PollerImpl::activate(Channel* channel) {
  if (channel->active) return;
  std::swap(*std::find(idle_channels_.begin(), idle_channels_.end(), channel),
            idle_channels_.back());
  idle_channels_.pop_back();
  channel->active = true;
  channel->quiet_turns = 0;
  active_.push_back(channel);
}

// One fence for all channels that were told something in this turn, then a look at who sleeps.
void PollerImpl::flush_wakes() {
  if (dirty_.empty()) return;
  shm::doorbell_fence();
  for (Channel* channel : dirty_) {
    channel->dirty = false;
    const uint32_t sleeping = channel->client->sleeping.load(std::memory_order_acquire);
    if (!shm::wants_wake(sleeping, channel->wake_count)) continue;
    channel->words->wake.store(++channel->wake_count, std::memory_order_release);
    channel->spec->stats->wakes.add(1);
    channel->counters->wakes.add(1);
    if ((sleeping & shm::kSleepsOnFutex) != 0) shm::futex_wake(channel->words->wake);
    if ((sleeping & shm::kSleepsOnDescriptor) != 0 && channel->spec->wake_socket >= 0) {
      const char byte = 0;
      send(channel->spec->wake_socket, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  dirty_.clear();
  WHERRY_FAULT_POINT(kTold, nullptr);
}

void PollerImpl::report(Report::Kind kind, ChannelSpec* channel, const char* reason) {
  Report report;
  report.kind = kind;
  report.poller = options.index;
  report.channel = channel;
  report.reason = reason;
  pending_reports_.push_back(report);  // reserved for all that can be pending at once
}

void PollerImpl::flush_reports() {
  size_t sent = 0;
  while (sent < pending_reports_.size() &&
         reports.try_enqueue(report_token, pending_reports_[sent]))
    ++sent;
  pending_reports_.erase(pending_reports_.begin(),
                         pending_reports_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (sent != 0 && options.report_eventfd >= 0) shm::ring_eventfd(options.report_eventfd);
}

void PollerImpl::check_ends() {
  if (!draining_ || live_ != 0) return;
  if (!idle_reported_ && !stopping_) {
    idle_reported_ = true;
    report(Report::Kind::kIdle, nullptr, "");
  }
  if (stopping_ && !stopped_ && active_.empty() && idle_channels_.empty()) {
    stopped_ = true;
    report(Report::Kind::kStopped, nullptr, "");
  }
}

void PollerImpl::run() {
  options.stats->state.store(static_cast<uint32_t>(shm::PollerState::kRunning),
                             std::memory_order_release);
  bool news = false;
  while (!stopped_) {
    // What was the time just now will do: a client waits for the news, or a copy for its successor.
    const uint32_t work = news || just_looked_ ? turn() : poll_once();
    news = false;
    if (work != 0) {
      idle_.worked(now_);
    } else if (idle_.should_sleep(now_)) {
      sleep();
    } else if (live_ == 0) {
      news = look_around();
    } else {
      shm::relax();
    }
  }
  options.stats->state.store(static_cast<uint32_t>(shm::PollerState::kStopped),
                             std::memory_order_release);
}

void PollerImpl::wake_if_asleep() {
  shm::doorbell_fence();
  if (asleep.load(std::memory_order_acquire) != 0) shm::ring_eventfd(wake_fd.get());
}

bool PollerImpl::work_waiting() const {
  if (commands_sent.load(std::memory_order_acquire) != commands_taken_) return true;
  if (inbox_sent.load(std::memory_order_acquire) != inbox_taken_) return true;
  return !pending_reports_.empty() || std::any_of(active_.begin(), active_.end(), has_news) ||
         std::any_of(idle_channels_.begin(), idle_channels_.end(), has_news);
}

void PollerImpl::set_doorbells(uint32_t wanted) {
  const uint32_t cpu = current_cpu();
  for (const auto* list : {&active_, &idle_channels_}) {
    for (Channel* channel : *list) {
      // relaxed: the fence behind it (going to sleep) or nothing (waking up) orders it.
      channel->words->doorbell_wanted.store(wanted, std::memory_order_relaxed);
      if (wanted == 0) say_cpu(channel, cpu);
    }
  }
}

// Sleeps on every source of work: doorbells, commands, siblings, lanes. Announces it first, then
// looks once more, so that whoever publishes from now on either is seen or rings.
void PollerImpl::sleep() {
  for (const LaneSlot& slot : lanes_) {
    if (slot.lane != nullptr && slot.lane->busy())
      return;  // only lanes that need polling exist so far
  }
  set_doorbells(1);
  asleep.store(1, std::memory_order_relaxed);  // relaxed: the fence orders it
  shm::doorbell_fence();
  if (!work_waiting()) {
    const uint64_t begin = clock();
    if (turn_begin_ns_ != 0) count_turn(begin);
    options.stats->state.store(static_cast<uint32_t>(shm::PollerState::kAsleep),
                               std::memory_order_release);
    options.stats->sleeps.add(1);
    const int timeout = options.sleep_bound_ns == 0
                            ? -1
                            : static_cast<int>((options.sleep_bound_ns + 999'999) / 1'000'000);
    epoll_event events[8];
    const int count = epoll_wait(epoll.get(), events, 8, timeout);
    if (count > 0) options.stats->wakeups.add(1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) continue;  // wake_fd
      Channel* channel = channels_[events[i].data.u64 - 1];
      if (channel != nullptr) activate(channel);
    }
    if (count == 0 && work_waiting()) options.stats->wakeups_by_timeout_with_work.add(1);
    options.stats->idle_ns.add(clock() - begin);
    options.stats->state.store(static_cast<uint32_t>(shm::PollerState::kRunning),
                               std::memory_order_release);
  }
  asleep.store(0, std::memory_order_release);
  set_doorbells(0);
}

}  // namespace wherry::engine
