// The floor of `rate`: records that pass from one core to another through a ring, and nothing else.
#pragma once

#include <cstdint>

#include "tools/bench/setting.h"

namespace wherry::bench {

// Records of `slots` slots a second, from the client's core to the engine's, whose engine must
// stand still meanwhile; for about `slice_ns`.
Result<double> ring_stream(const Cores& cores, uint32_t slots, uint64_t slice_ns);

}  // namespace wherry::bench
