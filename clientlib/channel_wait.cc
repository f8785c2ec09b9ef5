// ChannelCore: waiting, and the descriptor for event loops.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "clientlib/channel_core.h"
#include "shm/relax.h"

namespace wherry::detail {
namespace {

// No sleep is longer: a lost wake-up, a dead engine or an abandoned channel is noticed after that.
constexpr uint64_t kSliceNs = 10'000'000;
// How often a thread that may only watch looks.
constexpr uint64_t kWatchNs = 1'000'000;

void sleep_for(uint64_t ns) {
  const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

Status waited_too_long() {
  return {Code::kTimedOut,
          "request: wanted it complete before the deadline of this wait, got nothing yet; it goes "
          "on, wait again"};
}

}  // namespace

// Whether drive() has something to do.
bool ChannelCore::work_waits(Look look) const {
  if (link_->completions().ready() || over()) return true;
  if (look == Look::kNotifications && link_->has_notifications() &&
      link_->notifications().ready()) {
    return true;
  }
  // Freed space is work only for a request that waits for it.
  return (look == Look::kSpace || blocked_ == Code::kRingFull) && link_->head_moved();
}

// Spins a while, then sleeps, until there may be work or the deadline passes. May return early.
void ChannelCore::pause(uint64_t now, uint64_t deadline_ns, Look look) {
  if (link_ == nullptr) {
    sleep_for(std::min(kWatchNs, deadline_ns - now));
    return;
  }
  const uint64_t spin_ns = link_->shares_cpu() ? 0 : options_.spin_ns;
  const uint64_t spin_end = now + std::min(spin_ns, deadline_ns - now);
  while (monotonic_ns() < spin_end) {
    for (int i = 0; i < 16; ++i) {
      if (work_waits(look)) return;
      shm::relax();
    }
  }
  if (!link_->fall_asleep(shm::kSleepsOnFutex, [&] { return work_waits(look); })) return;
  const uint64_t later = monotonic_ns();
  if (later < deadline_ns) {
    link_->sleep(static_cast<int64_t>(std::min(kSliceNs, deadline_ns - later)));
  }
  link_->wake_up();
}

Status ChannelCore::wait(const Request& request, uint64_t deadline_ns) {
  for (;;) {
    looked();
    if (request.done.load(std::memory_order_acquire) != 0) return {};
    if (forked()) return in_a_fork();
    const bool owner = try_own();
    if (owner) {
      drive();
      if (request.done.load(std::memory_order_acquire) != 0) return {};
    }
    const uint64_t now = monotonic_ns();
    if (now >= deadline_ns) return waited_too_long();
    if (owner) {
      pause(now, deadline_ns, Look::kCompletions);
    } else {
      sleep_for(std::min(kWatchNs, deadline_ns - now));
    }
  }
}

Status ChannelCore::wait_for_room(Code refusal, uint64_t deadline_ns) {
  if (forked()) return in_a_fork();
  const uint64_t now = monotonic_ns();
  if (now >= deadline_ns) {
    return {Code::kTimedOut,
            "submit: wanted room before the deadline, got none; nothing was accepted, submit less "
            "at once"};
  }
  pause(now, deadline_ns, refusal == Code::kRingFull ? Look::kSpace : Look::kCompletions);
  drive();
  return {};
}

// Whether this thread may read notifications; does the channel's work.
Status ChannelCore::notifications_ready() {
  if (forked()) return in_a_fork();
  if (!try_own()) {
    return {Code::kInvalidArgument,
            "notifications: wanted the thread that owns the client's first channel, got another; "
            "ask there, or have the owner release() it"};
  }
  looked();
  drive();
  if (link_ == nullptr || link_->has_notifications()) return {};
  return {Code::kInvalidArgument,
          "notifications: wanted the client's first channel, got another; they arrive only there"};
}

Result<std::vector<Notification>> ChannelCore::take_notifications() {
  if (Status status = notifications_ready(); !status.ok()) return status;
  if (link_ != nullptr) read_notifications();
  return std::exchange(inbox_, {});
}

Result<std::vector<Notification>> ChannelCore::wait_notifications(uint64_t deadline_ns) {
  for (;;) {
    Result<std::vector<Notification>> list = take_notifications();
    const uint64_t now = monotonic_ns();
    if (!list.ok() || !list->empty() || now >= deadline_ns) return list;
    pause(now, deadline_ns, Look::kNotifications);
  }
}

Result<int> ChannelCore::descriptor(bool ready) {
  if (!epoll_.valid()) {
    return Status(Code::kUnsupported,
                  "descriptor: wanted a channel opened with one, got one without; set "
                  "ChannelOptions::descriptor");
  }
  if (forked()) return in_a_fork();
  if (!try_own()) {
    return Status(
        Code::kInvalidArgument,
        "descriptor: wanted the thread the channel belongs to, got another; arm it there");
  }
  drive();
  // What any call on this channel found since the loop last looked is news to the loop, however
  // often it is armed before that.
  told_ = std::exchange(unheard_, false) || told_;
  if (ready || told_ || !inbox_.empty()) {
    shm::ring_eventfd(self_event_.get());
  } else if (link_ != nullptr) {
    const bool asleep = link_->fall_asleep(shm::kSleepsOnDescriptor,
                                           [this] { return work_waits(Look::kNotifications); });
    if (!asleep) shm::ring_eventfd(self_event_.get());
  }
  armed_ = true;
  return epoll_.get();
}

// After the loop woke up: the client counts as awake, and the descriptor is quiet again.
void ChannelCore::disarm() {
  armed_ = false;
  if (link_ != nullptr) {
    link_->wake_up();
    std::array<char, 64> bytes;
    while (recv(link_->parts().wake_socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  disarm_self();
}

void ChannelCore::disarm_self() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = read(self_event_.get(), &count, sizeof(count));
}

}  // namespace wherry::detail
