// What a descriptor that a client sent as a region's memory really is.
//
// Control thread; no call here can be held up by the client: whatever is not a sealed memfd is
// refused before anything is asked of its file system. Refusals are INVALID_ARGUMENT, or
// OUT_OF_RANGE for a range outside the file.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shm/status.h"

namespace wherry::engine {

struct RegionFile {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t page_bytes = 0;
  bool writable = false;  // by this descriptor and the file's seals
};

// Checks descriptor and range: shrink seal, access mode, size, backed pages, alignment, length.
Result<RegionFile> check_region_file(int fd, uint64_t offset, uint64_t length);

// Whether two descriptors lead to one file. Device and inode number do not tell for certain:
// numbers of huge-page files come round again. The time of the last change does, since it is that
// of the file itself and nobody can set it.
bool same_file(int a, int b);

}  // namespace wherry::engine
