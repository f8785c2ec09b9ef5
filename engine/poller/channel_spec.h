// ChannelSpec: what a poller needs to know of a channel. Made by the control thread, which keeps it
// until the poller reports kChannelClosed; not changed in between.
#pragma once

#include <cstdint>
#include <string>

#include "engine/poller/commands.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/stats.h"

namespace wherry::engine {

struct ChannelSpec {
  SessionShared* session = nullptr;
  uint32_t channel = 0;  // index in its session
  shm::ChannelSizes sizes;
  shm::SegmentHeader c2e_header;  // as the engine wrote them: never read back
  shm::SegmentHeader e2c_header;
  shm::MappedSegment c2e;       // read-only
  shm::MappedSegment e2c;       // writable
  int eventfd = -1;             // client -> engine; watched, never read; owned by control
  int wake_socket = -1;         // engine -> client descriptor; -1 = none; owned by control
  int64_t clock_offset_ns = 0;  // client's CLOCK_MONOTONIC = engine's + this
  // The sender name that goes with its notifications.
  std::string instance;
  uint32_t rank = 0;
  // Limits of the client's share, from the config.
  uint32_t weight = 1;
  shm::ChannelStats* stats = nullptr;  // counters with this poller as the one writer
};

}  // namespace wherry::engine
