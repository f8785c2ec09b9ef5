// Round trips of small requests, one after the other: what `ring`, `local` and `fair` measure. Main
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tools/bench/attach.h"
#include "tools/bench/setting.h"

namespace wherry::bench {

struct RoundTrip {
  const LayoutPair* layouts = nullptr;
  std::span<const BlockId> blocks;  // the same on both sides
  TransportKind transport = TransportKind::kAny;
  bool spin = true;                 // whether this thread has a core of its own
  std::function<Status()> between;  // called after each; may be empty
};

// Appends the nanoseconds from submit to completion of `count` requests; some more go before.
Status round_trips(const Setting& setting, Channel& channel, const RoundTrip& what, uint32_t count,
                   std::vector<uint32_t>* samples);

}  // namespace wherry::bench
