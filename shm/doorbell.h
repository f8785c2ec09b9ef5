// Wake-ups between two processes of which either may sleep: a Dekker pair on both sides.
//
//   waker:   publish work (release) -> fence(seq_cst) -> read the sleeper's word -> ring if it
//   sleeps sleeper: store own word -> fence(seq_cst) -> look for work once more -> sleep
// With release and acquire alone both sides may miss each other (the store can pass the load), so
// both fences are needed; a stress test hangs without either. Client to engine: the words are
// EngineWords::doorbell_wanted and an eventfd that the engine watches and never reads. Engine to
// client: ClientWords::sleeping and a futex on EngineWords::wake, or a byte on a socket pair.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::shm {

// Sleeper: call after storing the own word, before the last look for work.
// Waker: call after publishing, before reading the sleeper's word.
inline void doorbell_fence() {
  // seq_cst: orders the store before it against the load after it, which release and acquire do
  // not.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// What a client stores in ClientWords::sleeping: how it wants to be woken, and the value of
// EngineWords::wake it saw, so that the engine wakes each sleep once and not once a completion.
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t kSleepsOnFutex = 1;
inline constexpr uint32_t kSleepsOnDescriptor = 2;
inline constexpr uint32_t sleeping_word(uint32_t wake, uint32_t how) { return (wake << 2) | how; }

// Whether a client that stored `sleeping` still has to be woken, given the engine's wake count.
inline bool wants_wake(uint32_t sleeping, uint32_t wake) {
  return (sleeping & 3) != 0 && (sleeping >> 2) == (wake << 2 >> 2);
}

// Wakes every waiter on the word. The result is ignored: whatever a client has done to the word is
// its own affair. A system call.
void futex_wake(const std::atomic<uint32_t>& word);

// Sleeps until the word differs from `expected`, a wake or the timeout; may return early.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns);

// A close-on-exec, non-blocking eventfd with value 0.
Result<UniqueFd> create_eventfd();

// Adds 1 to the eventfd. Never blocks on one made by create_eventfd; the result is ignored.
void ring_eventfd(int fd);

}  // namespace wherry::shm
