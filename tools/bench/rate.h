// `rate`: how many requests and block pairs one poller takes a second when none of them moves a
// byte (transport `null`).
//
// Two sizes of request: one pair, and 1,024 scattered ones, a few in flight. The floor is a ring
// that carries the same records between the same two cores.
#pragma once

#include "tools/bench/setting.h"

namespace wherry::bench {

Status run_rate(Setting& setting);

}  // namespace wherry::bench
