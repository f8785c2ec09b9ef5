// The floor of `ring`: the fastest round trip of 64 bytes between two cores through shared memory.
//
// There and back, each way a payload line and a flag line; nothing else happens. Two threads stand
// for the two processes: to the caches they are the same.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/bench/setting.h"

namespace wherry::bench {

// Nanoseconds of `count` round trips from the client's core to the engine's, whose engine must
// stand still meanwhile. Appends to `samples`.
Status ping_pong(const Cores& cores, uint32_t count, std::vector<uint32_t>* samples);

}  // namespace wherry::bench
