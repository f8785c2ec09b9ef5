// `local`: how long one small transfer takes, submit to completion: 4 KiB blocks that are warm, one
// of them and 32 in a request.
//
// The floor is what copying the same blocks takes on the poller's core, by the fastest way there
// is. Figure and floor of 32 are given per block.
#pragma once

#include "tools/bench/setting.h"

namespace wherry::bench {

Status run_local(Setting& setting);

}  // namespace wherry::bench
