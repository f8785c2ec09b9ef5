// Descriptors of every kind that a client may pass where memory or a process is wanted.
#pragma once

#include "shm/file_descriptor.h"
#include "tests/fuzz/dice.h"

namespace wherry::fuzz {

// One of them by chance; not valid where the kernel does not have the kind.
shm::UniqueFd odd_descriptor(Dice& dice);

}  // namespace wherry::fuzz
