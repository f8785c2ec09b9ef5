#include "clientlib/adopt.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "clientlib/owned_pages.h"
#include "shm/memory_limits.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace wherry::detail {
namespace {

constexpr uint64_t kStep = uint64_t{64} << 20;

// Holds up whoever writes to a range while it is copied. Not everywhere permitted.
class WriteGuard {
 public:
  WriteGuard() {
    // The full mode also holds up the kernel, in a read() into the range, but needs a privilege.
    fd_.reset(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    if (!fd_.valid()) {
      fd_.reset(
          static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
    }
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    if (fd_.valid() && ioctl(fd_.get(), UFFDIO_API, &api) != 0) fd_.reset();
  }

  bool available() const { return fd_.valid(); }

  // From here on writers wait. Only pages that exist can be protected.
  bool begin(std::byte* address, uint64_t bytes) {
    if (madvise(address, bytes, MADV_POPULATE_READ) != 0) return false;
    uffdio_register range{};
    range.range = range_of(address, bytes);
    range.mode = UFFDIO_REGISTER_MODE_WP;
    if (ioctl(fd_.get(), UFFDIO_REGISTER, &range) != 0) return false;
    uffdio_writeprotect protect{};
    protect.range = range.range;
    protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    if (ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &protect) == 0) return true;
    ioctl(fd_.get(), UFFDIO_UNREGISTER, &range.range);
    return false;
  }

  // Lets the writers go on, onto whatever is mapped there now.
  void end(std::byte* address, uint64_t bytes) {
    uffdio_range range = range_of(address, bytes);
    uffdio_writeprotect protect{};
    protect.range = range;
    // These two fail where the old mapping is gone, and are needed where it is not.
    ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &protect);
    ioctl(fd_.get(), UFFDIO_UNREGISTER, &range);
    ioctl(fd_.get(), UFFDIO_WAKE, &range);
  }

 private:
  static uffdio_range range_of(std::byte* address, uint64_t bytes) {
    return {reinterpret_cast<uint64_t>(address), bytes};
  }

  shm::UniqueFd fd_;
};

Status step_failed(const char* what, int error) {
  return errno_status(Code::kNoResources, std::string("adopt: ") + what, error);
}

// Copies one step into the memfd and maps it over the original. `*guarded` is cleared when writers
// could not be held up.
Status move_step(int memory, std::byte* base, uint64_t offset, uint64_t bytes, WriteGuard& guard,
                 bool* guarded) {
  if (fallocate(memory, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    return step_failed("allocating shared memory", errno);
  }
  std::byte* from = base + offset;
  const bool held = guard.available() && guard.begin(from, bytes);
  *guarded = *guarded && held;
  Status status;
  void* window =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, static_cast<off_t>(offset));
  if (window == MAP_FAILED) {
    status = step_failed("mapping shared memory", errno);
  } else {
    std::memcpy(window, from, bytes);
    munmap(window, bytes);
    if (mmap(from, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory,
             static_cast<off_t>(offset)) == MAP_FAILED) {
      status = step_failed("swapping the mapping", errno);
    }
  }
  if (held) guard.end(from, bytes);
  if (status.ok()) madvise(from, bytes, MADV_POPULATE_WRITE);  // only saves faults
  return status;
}

// realloc() moves a mapping as a whole; one with a different flag on its last page it cannot, so it
// copies.
void split_last_page(std::byte* base, uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  madvise(base + bytes - page, page, MADV_DONTDUMP);
}

}  // namespace

Result<AdoptedMemory> adopt_memory(void* address, uint64_t bytes, bool own_mapping) {
  Result<OwnedPages> pages =
      own_mapping ? pages_of_mapping(address, bytes) : pages_of_malloc(address, bytes);
  if (!pages.ok()) return pages.status();
  if (Status status = shm::check_memory_available(std::min(pages->bytes, kStep)); !status.ok()) {
    return status.with_context("adopt");
  }
  AdoptedMemory adopted;
  adopted.base = pages->base;
  adopted.bytes = pages->bytes;
  adopted.offset = static_cast<uint64_t>(static_cast<std::byte*>(address) - pages->base);
  adopted.memory.reset(memfd_create("wherry-adopted", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!adopted.memory.valid()) return step_failed("creating shared memory", errno);
  const int memory = adopted.memory.get();
  if (ftruncate(memory, static_cast<off_t>(pages->bytes)) != 0 ||
      fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return step_failed("sizing shared memory", errno);
  }
  WriteGuard guard;
  adopted.guarded = guard.available();
  uint64_t moved = 0;
  Status status;
  while (moved < pages->bytes && status.ok()) {
    const uint64_t step = std::min(kStep, pages->bytes - moved);
    status = move_step(memory, pages->base, moved, step, guard, &adopted.guarded);
    if (status.ok()) moved += step;
  }
  if (moved > 0 && !own_mapping) split_last_page(pages->base, moved);
  if (!status.ok()) return status;
  return adopted;
}

}  // namespace wherry::detail
