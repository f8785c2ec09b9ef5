// `copy`: GB/s of local transfers by piece size, beside what one core copies without an engine.
//
// Pieces of 4 KiB to 16 MiB (the longest common run of the two layouts); fully contiguous to fully
// contiguous and to both layer-separate kinds; requests of 32 blocks, 1 and 32 of them in flight;
// cold and warm (walk.h). The floor is the fastest of several ways to copy the same pieces, in the
// same order, on the poller's core.
#pragma once

#include "tools/bench/setting.h"

namespace wherry::bench {

Status run_copy(Setting& setting);

}  // namespace wherry::bench
