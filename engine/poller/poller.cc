#include "engine/poller/poller.h"

#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "engine/poller/poller_impl.h"
#include "shm/doorbell.h"

namespace wherry::engine {
namespace {

uint64_t monotonic_clock(void* /*context*/) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // vDSO: no system call
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

long membarrier_call(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

PollerImpl::PollerImpl(const PollerOptions& poller_options)
    : options(poller_options),
      idle_(poller_options.idle, poller_options.spin_ns),
      scheduler_(poller_options.quantum_bytes, kMaxChannels) {
  if (options.clock == nullptr) options.clock = monotonic_clock;
  channels_.resize(kMaxChannels);
  active_.reserve(kMaxChannels);
  idle_channels_.reserve(kMaxChannels);
  dirty_.reserve(kMaxChannels);
  pending_reports_.reserve(size_t{4} * kMaxChannels);
  for (Transport* transport : options.transports) {
    lanes_[static_cast<uint8_t>(transport->id())].lane = transport->make_lane(options.index);
  }
  membarrier = membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

Poller::Poller(std::unique_ptr<PollerImpl> impl) : impl_(std::move(impl)) {}
Poller::~Poller() = default;

Result<std::unique_ptr<Poller>> Poller::create(const PollerOptions& options) {
  auto impl = std::make_unique<PollerImpl>(options);
  impl->epoll.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!impl->epoll.valid())
    return errno_status(Code::kNoResources, "creating a poller's epoll set", errno);
  Result<shm::UniqueFd> wake = shm::create_eventfd();
  if (!wake.ok()) return wake.status();
  impl->wake_fd = std::move(*wake);
  epoll_event event{EPOLLIN | EPOLLET, {.u64 = 0}};
  if (epoll_ctl(impl->epoll.get(), EPOLL_CTL_ADD, impl->wake_fd.get(), &event) != 0) {
    return errno_status(Code::kNoResources, "filling a poller's epoll set", errno);
  }
  return std::unique_ptr<Poller>(new Poller(std::move(impl)));
}

void Poller::connect(const std::vector<Poller*>& all) {
  std::vector<PollerImpl*> impls;
  impls.reserve(all.size());
  for (Poller* poller : all) impls.push_back(poller->impl_.get());
  for (PollerImpl* impl : impls) {
    impl->siblings = impls;
    // Each sibling may have notifications and answers under way: twice kInboxSlots of them.
    if (impls.size() > 1)
      impl->inbox = std::make_unique<Inbox>(2 * kInboxSlots * impls.size(), impls.size(), 0);
  }
  for (PollerImpl* impl : impls) {
    for (PollerImpl* other : impls) {
      const bool self = other == impl || other->inbox == nullptr;
      impl->outboxes.push_back(self ? nullptr
                                    : std::make_unique<moodycamel::ProducerToken>(*other->inbox));
    }
  }
}

std::shared_ptr<Channel> Poller::prepare(ChannelSpec* spec) {
  return std::make_shared<Channel>(spec);
}

void Poller::send(const Command& command, std::shared_ptr<Channel> prepared) {
  InternalCommand internal{command, nullptr};
  if (command.kind == Command::Kind::kAddChannel) {
    if (prepared == nullptr) prepared = prepare(command.channel);
    internal.channel = prepared.get();
    impl_->owned_channels[command.channel] = std::move(prepared);
  }
  impl_->commands.enqueue(internal);
  impl_->commands_sent.fetch_add(1, std::memory_order_release);
  impl_->wake_if_asleep();
}

bool Poller::take_report(Report* report) {
  if (!impl_->reports.try_dequeue(*report)) return false;
  if (report->kind == Report::Kind::kChannelClosed) impl_->owned_channels.erase(report->channel);
  return true;
}

uint64_t Poller::begin_grace() {
  // The barrier makes every thread of the process see what was published before it; without it, a
  // turn that began just now could still have read the old table, so one turn more is waited for.
  const bool barrier = impl_->membarrier && membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
  const uint64_t ticket = impl_->epoch.load(std::memory_order_acquire) + (barrier ? 1 : 2);
  impl_->wake_if_asleep();
  return ticket;
}

bool Poller::grace_over(uint64_t ticket) const {
  return impl_->epoch.load(std::memory_order_acquire) >= ticket;
}

void Poller::run() { impl_->run(); }
uint32_t Poller::poll_once() { return impl_->poll_once(); }
uint32_t Poller::index() const { return impl_->options.index; }

}  // namespace wherry::engine
