// Adoption: moves the pages of existing private memory into a memfd, at the same addresses.
// Internal.
//
// Any thread; blocks while it copies. Step by step: check that the range owns its pages; copy 64
// MiB into the memfd and swap its mapping in, writers being held up by userfaultfd write protection
// where the kernel permits it; in the end split the last page off, so that realloc() copies instead
// of moving the mapping. A failure leaves the contents as they were; some of the memory may be
// shared already, which works too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::detail {

struct AdoptedMemory {
  shm::UniqueFd memory;       // sealed against shrinking and growing, every page allocated
  std::byte* base = nullptr;  // of the whole pages that were moved
  uint64_t bytes = 0;
  uint64_t offset = 0;   // of the caller's address from `base`
  bool guarded = false;  // writers were held up
};

// INVALID_ARGUMENT, with the reason, for memory that does not own its pages: part of a heap, a
// stack, a file, memory that is shared already, a buffer of an unknown allocator. NO_RESOURCES: too
// little memory. `own_mapping`: see AdoptOptions.
Result<AdoptedMemory> adopt_memory(void* address, uint64_t bytes, bool own_mapping);

}  // namespace wherry::detail
