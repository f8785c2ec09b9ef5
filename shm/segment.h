// Memory segments: sealed memfds, how they are made, checked and mapped.
//
// The engine makes both segments of a channel; c2e is written by the client only and e2c by the
// engine only (see seal_c2e and create_e2c for how the kernel is made to guarantee it). A Mapping
// unmaps itself. Nothing here is for a poller: every call may block in the kernel.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>

#include "shm/file_descriptor.h"
#include "shm/layout.h"
#include "shm/status.h"

namespace wherry::shm {

enum class Access : uint8_t { kRead, kReadWrite };

// A mapped file range. Moves, does not copy.
class MappedSegment {
 public:
  MappedSegment() = default;

  // Maps `bytes` from the start of `fd`, after checking that the file is at least that long.
  static Result<MappedSegment> map(int fd, uint64_t bytes, Access access);

  std::byte* data() const { return static_cast<std::byte*>(region_.get_address()); }
  uint64_t size() const { return region_.get_size(); }
  bool mapped() const { return region_.get_address() != nullptr; }

  template <typename T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(data() + offset);
  }

 private:
  mutable boost::interprocess::mapped_region region_;
};

// A memfd of `bytes` (rounded up to whole pages), close-on-exec, sealable, every page allocated,
// sealed against shrinking and growing. `huge_page_bytes` 0 = ordinary pages, else 2 MiB or 1 GiB
// pages. NO_RESOURCES when the memory limits leave no room (asked before allocating: beyond a
// cgroup's limit the kernel kills instead of failing) or the huge page pool is too small.
Result<UniqueFd> create_memory(const char* name, uint64_t bytes, uint64_t huge_page_bytes = 0);

// A c2e segment with its header written. Map it read-only in the engine.
Result<UniqueFd> create_c2e(const SegmentHeader& header);

// Closes c2e against new writable mappings and hole punching. To be called once the client has
// mapped it and said so; only then may it be polled.
Status seal_c2e(int fd);

// An e2c segment with its header written, mapped writable here and then sealed so that nobody else
// can ever map it writable.
struct E2cSegment {
  UniqueFd fd;
  MappedSegment mapping;
};
Result<E2cSegment> create_e2c(const SegmentHeader& header);

// Reads the header at the start of a segment into private memory.
Result<SegmentHeader> read_header(const MappedSegment& mapping, SegmentKind kind);

}  // namespace wherry::shm
