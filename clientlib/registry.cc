#include "clientlib/registry.h"

#include <sys/mman.h>

#include <cerrno>

namespace wherry::detail {

OwnMapping::~OwnMapping() {
  if (address_ != nullptr) munmap(address_, bytes_);
}

Result<OwnMapping> OwnMapping::map(int fd, uint64_t offset, uint64_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) {
    return errno_status(Code::kNoResources,
                        "mapping a region of " + std::to_string(bytes) + " bytes", errno);
  }
  return OwnMapping(static_cast<std::byte*>(address), bytes);
}

}  // namespace wherry::detail
