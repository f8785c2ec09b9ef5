// `fair`: what clients of one engine do to one another.
//
// 1, 4, 16 and 64 clients keep requests of equal size in flight over pools that are as large
// together as the one client's: the bytes of all beside those of one, and Jain's index of how
// evenly they are shared ((sum x)^2 / (n * sum x^2); 1 = evenly). And the p99 of 4 KiB requests of
// one client while another floods the engine with requests of 1 MiB, beside the same alone.
#pragma once

#include "tools/bench/setting.h"

namespace wherry::bench {

Status run_fair(Setting& setting);

}  // namespace wherry::bench
