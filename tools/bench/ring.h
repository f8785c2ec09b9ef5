// `ring`: submit -> completion of a request that moves nothing, between two processes.
//
// An empty block list never reaches the engine (the library answers it), so the request is the
// smallest there is: one pair of blocks in one 64-byte record, through the transport `null`. It
// takes the whole way: checks, ring, validation, plan, scheduler, lane, completion.
#pragma once

#include "tools/bench/setting.h"

namespace wherry::bench {

Status run_ring(Setting& setting);

}  // namespace wherry::bench
