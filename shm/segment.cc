#include "shm/segment.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <cstring>
#include <string>

#include "shm/memory_limits.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace wherry::shm {
namespace {

// What boost's mapped_region needs to see of a descriptor.
struct MappableFd {
  int fd;
  boost::interprocess::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

Status write_header(int fd, const SegmentHeader& header) {
  const ssize_t written = pwrite(fd, &header, sizeof(header), 0);
  if (written == static_cast<ssize_t>(sizeof(header))) return {};
  return errno_status(Code::kNoResources, "writing a segment header", errno);
}

Status add_seals(int fd, int seals) {
  if (fcntl(fd, F_ADD_SEALS, seals) == 0) return {};
  return errno_status(Code::kInternal, "sealing a segment", errno);
}

}  // namespace

Result<MappedSegment> MappedSegment::map(int fd, uint64_t bytes, Access access) {
  struct stat info {};
  if (fstat(fd, &info) != 0)
    return errno_status(Code::kInvalidArgument, "looking at a segment", errno);
  if (bytes == 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return Status(Code::kInvalidArgument,
                  "mapping a segment: wanted " + std::to_string(bytes) + " bytes, got a file of " +
                      std::to_string(info.st_size) + "; the other side sent a wrong descriptor");
  }
  namespace bip = boost::interprocess;
  MappedSegment result;
  try {
    result.region_ = bip::mapped_region(
        MappableFd{fd}, access == Access::kRead ? bip::read_only : bip::read_write, 0, bytes);
  } catch (const bip::interprocess_exception& error) {
    return errno_status(Code::kNoResources,
                        "mapping a segment of " + std::to_string(bytes) + " bytes",
                        error.get_native_error());
  }
  return result;
}

Result<UniqueFd> create_memory(const char* name, uint64_t bytes, uint64_t huge_page_bytes) {
  const uint64_t page = huge_page_bytes == 0 ? kSegmentPage : huge_page_bytes;
  if (bytes == 0 || bytes > UINT64_MAX - page || !std::has_single_bit(page) ||
      page < kSegmentPage) {
    return Status(Code::kInvalidArgument,
                  std::string("memory for ") + name + ": wanted at least one byte in pages of " +
                      std::to_string(page) + ", got " + std::to_string(bytes) +
                      "; give a size and a page size of this machine");
  }
  const uint64_t rounded = (bytes + page - 1) / page * page;
  if (huge_page_bytes == 0) {
    if (Status status = check_memory_available(rounded); !status.ok())
      return status.with_context(name);
  }
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (huge_page_bytes != 0) {
    flags |= MFD_HUGETLB | (static_cast<unsigned>(std::countr_zero(page)) << MFD_HUGE_SHIFT);
  }
  UniqueFd fd(memfd_create(name, flags));
  if (!fd.valid()) {
    const int error = errno;
    return errno_status(Code::kNoResources,
                        std::string("creating memory for ") + name +
                            (huge_page_bytes != 0 ? " in huge pages of " + std::to_string(page) +
                                                        " bytes: wanted a size this machine has; "
                                                        "use 2 MiB or ordinary pages"
                                                  : ""),
                        error);
  }
  if (ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) {
    return errno_status(Code::kNoResources, std::string("sizing memory for ") + name, errno);
  }
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(rounded)) != 0) {
    const int error = errno;
    return errno_status(
        Code::kNoResources,
        "allocating " + std::to_string(rounded) + " bytes for " + name +
            (huge_page_bytes != 0
                 ? ": too few free huge pages; raise vm.nr_hugepages or use ordinary pages"
                 : ": too little memory; ask for less"),
        error);
  }
  if (Status status = add_seals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW); !status.ok()) return status;
  return fd;
}

Result<UniqueFd> create_c2e(const SegmentHeader& header) {
  Result<UniqueFd> fd = create_memory("wherry-c2e", header.total_bytes);
  if (!fd.ok()) return fd;
  if (Status status = write_header(fd->get(), header); !status.ok()) return status;
  return fd;
}

Status seal_c2e(int fd) { return add_seals(fd, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); }

Result<E2cSegment> create_e2c(const SegmentHeader& header) {
  Result<UniqueFd> fd = create_memory("wherry-e2c", header.total_bytes);
  if (!fd.ok()) return fd.status();
  if (Status status = write_header(fd->get(), header); !status.ok()) return status;
  Result<MappedSegment> mapping =
      MappedSegment::map(fd->get(), header.total_bytes, Access::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  // From here on only the mapping just made can write.
  if (Status status = add_seals(fd->get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); !status.ok())
    return status;
  return E2cSegment{std::move(*fd), std::move(*mapping)};
}

Result<SegmentHeader> read_header(const MappedSegment& mapping, SegmentKind kind) {
  SegmentHeader header;
  if (mapping.size() < sizeof(header)) {
    return Status(Code::kInvalidArgument, "segment: wanted room for a header, got " +
                                              std::to_string(mapping.size()) +
                                              " bytes; do not use this channel");
  }
  std::memcpy(&header, mapping.data(), sizeof(header));
  if (Status status = check_header(header, kind, mapping.size()); !status.ok()) return status;
  return header;
}

}  // namespace wherry::shm
