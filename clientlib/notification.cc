#include "clientlib/notification.h"

#include <algorithm>
#include <utility>

#include "clientlib/aggregate.h"
#include "clientlib/channel_core.h"
#include "clientlib/guard.h"
#include "clientlib/outcome.h"

namespace wherry {
namespace {

const Completion kComplete;  // of a notification without a request

void merge_members(detail::Aggregate* aggregate) {
  Completion& whole = aggregate->completion;
  size_t failed = 0;
  for (const TransferCompleteNotification& one : aggregate->members) {
    failed += one.completion()->failed.size();
  }
  whole.failed.reserve(failed);  // the only step that may throw comes first
  detail::Outcome outcome;
  for (size_t i = 0; i < aggregate->members.size(); ++i) {
    const Completion& one = *aggregate->members[i].completion();
    if (outcome.add(one.status)) {
      whole.wc_status = one.wc_status;
      whole.error_number = one.error_number;
      whole.vendor_error = one.vendor_error;
    }
    whole.local_quiet = whole.local_quiet && one.local_quiet;
    whole.remote_quiet = whole.remote_quiet && one.remote_quiet;
    if (one.transport != TransportKind::kAny) {
      whole.transport = one.transport;
      whole.device = one.device;
    }
    if (whole.request_id == 0) whole.request_id = one.request_id;
    whole.bytes += one.bytes;
    whole.blocks_ok += one.blocks_ok;
    whole.blocks_failed += one.blocks_failed;
    const auto earlier = [](uint64_t a, uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; };
    whole.submit_ns = earlier(whole.submit_ns, one.submit_ns);
    whole.start_ns = earlier(whole.start_ns, one.start_ns);
    whole.end_ns = std::max(whole.end_ns, one.end_ns);
    for (FailedBlock block : one.failed) {
      block.member = static_cast<uint32_t>(i);
      whole.failed.push_back(block);
    }
  }
  whole.status = outcome.code();
}

// Merges once all members are complete; whether they are. Without memory for the merge it is not
// complete yet: the next look tries again.
bool merge_if_complete(detail::Aggregate* aggregate) noexcept {
  if (aggregate->merged.load(std::memory_order_acquire)) return true;
  for (const TransferCompleteNotification& member : aggregate->members) {
    if (member.completion() == nullptr) return false;
  }
  try {
    std::lock_guard lock(aggregate->merging);
    if (aggregate->merged.load(std::memory_order_relaxed)) return true;  // relaxed: under the lock
    merge_members(aggregate);
    aggregate->merged.store(true, std::memory_order_release);
  } catch (...) {
    return false;
  }
  return true;
}

// While one member is waited for, the other members' channels need a look now and then.
constexpr uint64_t kMemberSliceNs = 1'000'000;

}  // namespace

TransferCompleteNotification::TransferCompleteNotification(
    const TransferCompleteNotification& other)
    : channel_(other.channel_), request_(other.request_), aggregate_(other.aggregate_) {
  // relaxed: whoever copies holds a reference already.
  if (request_ != nullptr) request_->references.fetch_add(1, std::memory_order_relaxed);
}

TransferCompleteNotification::TransferCompleteNotification(
    TransferCompleteNotification&& other) noexcept
    : channel_(std::move(other.channel_)),
      request_(std::exchange(other.request_, nullptr)),
      aggregate_(std::move(other.aggregate_)) {}

TransferCompleteNotification& TransferCompleteNotification::operator=(
    TransferCompleteNotification other) noexcept {
  std::swap(channel_, other.channel_);
  std::swap(request_, other.request_);
  std::swap(aggregate_, other.aggregate_);
  return *this;
}

TransferCompleteNotification::~TransferCompleteNotification() {
  if (request_ != nullptr) channel_->pool().drop(request_);
}

Result<TransferCompleteNotification> TransferCompleteNotification::aggregate(
    std::vector<TransferCompleteNotification> members) {
  return detail::guarded([&]() -> Result<TransferCompleteNotification> {
    TransferCompleteNotification result;
    if (members.empty()) return result;
    result.aggregate_ = std::make_shared<detail::Aggregate>();
    result.aggregate_->members = std::move(members);
    return result;
  });
}

const Completion* TransferCompleteNotification::completion() const noexcept {
  if (aggregate_ != nullptr) {
    return merge_if_complete(aggregate_.get()) ? &aggregate_->completion : nullptr;
  }
  if (request_ == nullptr) return &kComplete;
  return request_->done.load(std::memory_order_acquire) != 0 ? &request_->completion : nullptr;
}

bool TransferCompleteNotification::poll() noexcept {
  if (request_ != nullptr) channel_->looked();
  if (completion() != nullptr) return true;
  if (aggregate_ == nullptr) {
    channel_->drive();
  } else {
    for (TransferCompleteNotification& member : aggregate_->members) member.poll();
  }
  return completion() != nullptr;
}

Result<Completion> TransferCompleteNotification::wait(uint64_t deadline_ns) {
  return detail::guarded([&]() -> Result<Completion> {
    if (aggregate_ == nullptr) {
      if (request_ != nullptr) {
        if (Status s = channel_->wait(*request_, deadline_ns); !s.ok()) return s;
      }
      return *completion();
    }
    while (!poll()) {
      // poll() drove every channel; now sleep on the first member that is not complete.
      for (TransferCompleteNotification& member : aggregate_->members) {
        if (member.completion() != nullptr) continue;
        const uint64_t slice = monotonic_ns() + kMemberSliceNs;
        const Status status = member.wait(std::min(deadline_ns, slice)).status();
        const bool goes_on =
            status.ok() || (status.code() == Code::kTimedOut && slice < deadline_ns);
        if (!goes_on) return status;
        break;
      }
    }
    return *completion();
  });
}

Status TransferCompleteNotification::cancel() {
  return detail::guarded([&]() -> Status {
    if (aggregate_ == nullptr) return request_ == nullptr ? Status() : channel_->cancel(request_);
    Status first;
    for (TransferCompleteNotification& member : aggregate_->members) {
      Status status = member.cancel();
      if (first.ok()) first = status;
    }
    return first;
  });
}

Result<int> TransferCompleteNotification::descriptor() {
  return detail::guarded([&]() -> Result<int> {
    if (aggregate_ == nullptr) {
      if (request_ != nullptr) return channel_->descriptor(completion() != nullptr);
      return Status(Code::kUnsupported,
                    "descriptor: wanted a request of a channel, got none; it is complete already");
    }
    // All members have to share one channel, directly or through aggregates of their own.
    const auto several = [] {
      return Status(Code::kUnsupported,
                    "descriptor: wanted members of one channel, got several; watch each one's");
    };
    Result<int> shared = several();
    for (TransferCompleteNotification& member : aggregate_->members) {
      if (member.completion() != nullptr) continue;
      Result<int> one = member.descriptor();
      if (!one.ok()) return one;
      if (shared.ok() && *shared != *one) return several();
      shared = one;
    }
    if (shared.ok()) return shared;
    for (TransferCompleteNotification& member : aggregate_->members) {  // all complete: readable
      shared = member.descriptor();
      if (shared.ok()) break;
    }
    return shared;
  });
}

}  // namespace wherry
