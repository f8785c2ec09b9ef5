// Random numbers that nobody can guess: incarnations, first generations. Any thread.
#pragma once

#include <cstdint>

namespace wherry::engine {

// Never 0.
uint64_t random_u64();

}  // namespace wherry::engine
