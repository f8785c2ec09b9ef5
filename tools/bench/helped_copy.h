// The part of `copy` that tells what a copy thread brings: the rate of cold copies with one more
// core, beside the same without.
//
// The client sleeps while it waits, so that on two cores the copy thread has the client's.
#pragma once

#include "tools/bench/setting.h"

namespace wherry::bench {

Status run_helped_copy(Setting& setting);

}  // namespace wherry::bench
