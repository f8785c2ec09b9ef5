// Which whole pages belong to a buffer, and to nothing else. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/status.h"

namespace wherry::detail {

struct OwnedPages {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

// The pages of the caller's own anonymous private mapping [address, address + bytes).
Result<OwnedPages> pages_of_mapping(void* address, uint64_t bytes);

// The pages of the chunk that glibc's malloc mapped for the buffer at `address`: the pointer that
// malloc, calloc, posix_memalign or aligned_alloc gave, or the start of a numpy or torch buffer on
// top of one.
Result<OwnedPages> pages_of_malloc(void* address, uint64_t bytes);

}  // namespace wherry::detail
