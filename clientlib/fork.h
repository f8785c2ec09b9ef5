// Whether this process is a fork of the one that attached. Internal; any thread.
//
// A forked child has the parent's mappings and descriptors but none of its threads, and whatever
// locks they held stay held. So every call asks this first, and nothing of a session is touched in
// a child.
#pragma once

#include <cstdint>

#include "shm/status.h"

namespace wherry::detail {

// How often this process's line has forked since the library was first used.
uint32_t fork_generation();

// ABORTED, for a call in a forked child.
Status in_a_fork();

}  // namespace wherry::detail
