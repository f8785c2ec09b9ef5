// What the control thread and the pollers say to each other: plain values through moodycamel
// queues.
//
// Commands go control -> poller, reports poller -> control. A poller only ever tries to put a
// report and keeps it for the next turn when the queue is full. Pointers in a command stay valid
// until the report that answers it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/tables.h"
#include "shm/slot.h"

namespace wherry::engine {

struct ChannelSpec;  // channel_spec.h: what a poller needs to know of a channel

struct Command {
  enum class Kind : uint8_t {
    kAddChannel,    // channel: start polling it
    kCloseChannel,  // channel: stop reading, fail what is queued (code), drain, report
                    // kChannelClosed
    kDrain,         // take no new requests (answer DRAINING), finish the accepted ones
    kStop,          // fail what is queued with `code`, drain what is posted, then report kStopped
  };
  Kind kind = Kind::kAddChannel;
  Code code = Code::kAborted;
  ChannelSpec* channel = nullptr;
};

struct Report {
  enum class Kind : uint8_t {
    kChannelClosed,  // channel: nothing of it is touched any more
    kViolation,      // channel: its client broke the contract; `reason` says how; not read any more
    kIdle,           // after kDrain: no accepted request is left
    kStopped,        // after kStop: likewise, and the poller will not touch anything again
    kRegionBroken,   // channel: a request of it met a mapping that lost pages
  };
  Kind kind = Kind::kChannelClosed;
  uint32_t poller = 0;
  ChannelSpec* channel = nullptr;
  const char* reason = "";  // a string literal
};

inline constexpr uint32_t kMaxNameBytes = 64;

// A notification on its way between two pollers, and its answer on the way back.
struct PostedNotification {
  uint64_t sender_session = 0;
  uint64_t target_session = 0;
  uint64_t sequence = 0;
  uint64_t request_id = 0;  // guards against a reused request slot
  uint32_t sender_poller = 0;
  uint32_t answering_poller = 0;
  uint32_t request = 0;  // the sender's request slot
  uint32_t sender_rank = 0;
  Code code = Code::kOk;  // of the answer
  bool is_answer = false;
  uint16_t name_bytes = 0;
  uint16_t message_bytes = 0;
  // The sender's name, then the message.
  std::array<std::byte, kMaxNameBytes + shm::kMaxNotificationBytes> bytes;
};

}  // namespace wherry::engine
