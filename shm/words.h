// The words beside the rings: what client and engine tell each other without a message.
//
// ClientWords lie in c2e (the client writes, the engine reads), EngineWords in e2c (the engine's
// poller writes, the client reads). Words of different writers, and words that change at different
// times, sit 128 bytes apart: two lines, because the adjacent-line prefetcher pulls pairs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/counter.h"

namespace wherry::shm {

inline constexpr size_t kWordSpacing = 128;
inline constexpr uint32_t kCancelSlots = 64;

struct ClientWords {
  // Completion ring position up to which the client has reaped. Stored (release) before a record
  // that spends the credits so freed is published.
  alignas(kWordSpacing) std::atomic<uint64_t> reap_cursor;
  // 1 while the client sleeps on the futex word or its descriptor.
  alignas(kWordSpacing) std::atomic<uint32_t> sleeping;
  // Notification ring position up to which the client has read.
  alignas(kWordSpacing) std::atomic<uint64_t> notification_cursor;
  // Request ids to cancel: a ring of kCancelSlots, tail counts up.
  alignas(kWordSpacing) std::atomic<uint64_t> cancel_tail;
  alignas(kWordSpacing) std::atomic<uint64_t> cancel_ids[kCancelSlots];
  // Submission ring tail, for stats only.
  alignas(kWordSpacing) std::atomic<uint64_t> submission_tail;
};
static_assert(offsetof(ClientWords, sleeping) == 128 && offsetof(ClientWords, cancel_tail) == 384);
static_assert(offsetof(ClientWords, cancel_ids) == 512 && sizeof(ClientWords) == 1152);

enum class ChannelState : uint32_t {
  kOpening = 0,  // not polled yet
  kActive = 1,
  kDraining = 2,  // the engine takes no new requests
  kClosed = 3,    // the session ended: what is not completed by now will not be
};

struct EngineWords {
  // Submission ring position up to which the engine has copied; published lazily.
  alignas(kWordSpacing) std::atomic<uint64_t> submission_head;
  // 1 while the poller wants the eventfd rung after a publish.
  alignas(kWordSpacing) std::atomic<uint32_t> doorbell_wanted;
  // Counts up when the client is to be woken; the client futex-waits on it.
  alignas(kWordSpacing) std::atomic<uint32_t> wake;
  alignas(kWordSpacing) std::atomic<uint32_t> state;  // ChannelState
  // The processor the poller ran on when it last began to look at this channel, or woke up. A
  // client that shares it sleeps instead of spinning: the poller cannot run while it spins.
  std::atomic<uint32_t> cpu;
  // Cancel ring position up to which the engine has read.
  alignas(kWordSpacing) std::atomic<uint64_t> cancel_head;
  // Completion ring tail, for stats only.
  alignas(kWordSpacing) std::atomic<uint64_t> completion_tail;
};
static_assert(offsetof(EngineWords, doorbell_wanted) == 128 && offsetof(EngineWords, wake) == 256);
static_assert(sizeof(EngineWords) == 768);

// The channel's own counters, in e2c; one writer, the poller.
struct ChannelCounters {
  Counter requests;
  Counter completed;
  Counter failed;
  Counter pairs;
  Counter bytes;
  Counter notifications;
  Counter wakes;
  Counter reserved;
};
static_assert(sizeof(ChannelCounters) == 64);

}  // namespace wherry::shm
