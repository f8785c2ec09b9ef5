// Request: a record once admitted, and the pools it lives in.
//
// Each channel has as many requests and pair chunks as its completion ring has slots: credits bound
// the number in flight, so the pools never run dry. Everything here belongs to the poller's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/poller/plan.h"
#include "engine/tables.h"
#include "engine/transport/transport.h"
#include "shm/slot.h"

namespace wherry::engine {

class Channel;

inline constexpr uint32_t kNone = UINT32_MAX;

// The private copy of one extension slot.
struct PairChunk {
  shm::Payload payload;
  uint32_t next = kNone;
  uint32_t unused = 0;
};
static_assert(sizeof(PairChunk) == 64);

// Where the generation of runs stands. For block transfers a group is one pair, or several pairs
// whose blocks are neighbours on both sides, moved together.
struct RunCursor {
  uint32_t next_pair = 0;  // first pair not yet in a group
  uint32_t chunk = kNone;  // chunk that holds next_pair
  uint32_t group_first = 0;
  uint32_t group_count = 0;  // 0: no group loaded
  shm::BlockPair group{};    // its first pair
  uint32_t layer = 0;
  uint32_t outer = 0;
  uint64_t done = 0;  // bytes of the current run already handed out
  // Byte ranges: what is left, and where.
  uint64_t remaining = 0;
  uint64_t source_at = 0;
  uint64_t destination_at = 0;
  uint32_t source_part = 0;
  uint32_t destination_part = 0;
};

struct Request {
  enum class State : uint8_t { kFree, kQueued, kPosted, kNotifying };

  uint64_t id = 0;  // position of the head slot + 1
  Channel* channel = nullptr;
  uint32_t slot = 0;  // in the channel's pool, and in the in-flight table
  State state = State::kFree;
  shm::Op op = shm::Op::kTransfer;
  uint8_t priority = 0;
  TransportId transport = TransportId::kNone;
  bool ended_early = false;  // deadline, cancel, close: no more runs are made
  bool marked = false;       // in the in-flight table
  uint16_t slot_count = 0;
  uint16_t notification_bytes = 0;
  uint32_t pair_count = 0;
  shm::BlockPair first_pair{};
  uint32_t first_chunk = kNone;  // pairs 1 and up, seven a chunk
  uint32_t notification_chunk = kNone;

  const View* source = nullptr;
  const View* destination = nullptr;
  Plan plan;
  uint32_t layer_first = 0;
  uint32_t layer_end = 0;
  RunCursor cursor;

  uint32_t runs_out = 0;  // posted and not yet returned
  uint32_t failed_pairs = 0;
  uint64_t bytes = 0;
  Code code = Code::kOk;  // first cause
  uint8_t wc_status = 0;
  uint16_t error_number = 0;
  uint32_t vendor_error = 0;

  uint64_t deadline_ns = 0;  // the engine's clock
  uint64_t admitted_ns = 0;
  uint64_t start_ns = 0;
  uint32_t heap_index = kNone;  // in the poller's deadlines
  Request* next = nullptr;      // in its flow's queue, or in the channel's free list
};

// A failed pair's entry is overwritten in the private copy: the top bit of `source` (no block id
// has it) says so, the rest holds what the failed entry of the completion will say.
inline constexpr uint32_t kFailedBit = 0x80000000u;

inline shm::BlockPair failed_mark(Code code, uint8_t wc_status, uint16_t error_number) {
  return {kFailedBit,
          static_cast<uint32_t>(code) | uint32_t{wc_status} << 8 | uint32_t{error_number} << 16};
}

// Chunks of one channel.
class ChunkPool {
 public:
  explicit ChunkPool(uint32_t count) : chunks_(count) {
    for (uint32_t i = 0; i < count; ++i) chunks_[i].next = i + 1 < count ? i + 1 : kNone;
    free_ = count == 0 ? kNone : 0;
  }

  uint32_t take() {
    const uint32_t index = free_;
    free_ = chunks_[index].next;
    chunks_[index].next = kNone;
    return index;
  }

  // Gives back a whole chain.
  void give_back(uint32_t first) {
    while (first != kNone) {
      const uint32_t next = chunks_[first].next;
      chunks_[first].next = free_;
      free_ = first;
      first = next;
    }
  }

  PairChunk& operator[](uint32_t index) { return chunks_[index]; }

 private:
  std::vector<PairChunk> chunks_;
  uint32_t free_ = kNone;
};

}  // namespace wherry::engine
