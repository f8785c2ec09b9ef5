#include "engine/control/region_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace wherry::engine {
namespace {

Status refuse(const std::string& what) {
  return {Code::kInvalidArgument, "region memory: " + what};
}

}  // namespace

Result<RegionFile> check_region_file(int fd, uint64_t offset, uint64_t length) {
  const int mode = fcntl(fd, F_GETFL);
  if (mode >= 0 && ((mode & O_PATH) != 0 || (mode & O_ACCMODE) == O_WRONLY)) {
    return refuse(
        "wanted a descriptor opened for reading, or for reading and writing, got one that is "
        "not; open it so");
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return refuse(
        "wanted a memfd, got another kind of file; make it with memfd_create and "
        "MFD_ALLOW_SEALING");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return refuse(
        "wanted a memfd sealed against shrinking, got one without F_SEAL_SHRINK; add the "
        "seal with fcntl(F_ADD_SEALS)");
  }
  struct stat info {};
  struct statfs system {};
  if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0) {
    return errno_status(Code::kInvalidArgument, "looking at region memory", errno);
  }
  const bool huge = static_cast<uint64_t>(system.f_type) == HUGETLBFS_MAGIC;
  RegionFile file;
  file.device = info.st_dev;
  file.inode = info.st_ino;
  file.page_bytes = static_cast<uint64_t>(huge ? info.st_blksize : sysconf(_SC_PAGESIZE));
  file.writable =
      (mode & O_ACCMODE) == O_RDWR && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0;
  const auto size = static_cast<uint64_t>(info.st_size);
  if (length == 0) return refuse("wanted a length of at least one page, got 0; give a length");
  if (offset % file.page_bytes != 0 || length % file.page_bytes != 0) {
    return refuse("wanted offset and length in whole pages of " + std::to_string(file.page_bytes) +
                  " bytes, got " + std::to_string(offset) + " and " + std::to_string(length) +
                  "; round them");
  }
  if (offset > size || length > size - offset) {
    return Status(Code::kOutOfRange, "region memory: wanted a range inside the file's " +
                                         std::to_string(size) + " bytes, got offset " +
                                         std::to_string(offset) + " and length " +
                                         std::to_string(length) + "; correct the range");
  }
  const auto backed = static_cast<uint64_t>(info.st_blocks) * 512;
  if (backed < size) {
    return refuse("wanted all pages allocated, got " + std::to_string(backed) + " of " +
                  std::to_string(size) + " bytes; call fallocate before registering");
  }
  return file;
}

bool same_file(int a, int b) {
  struct stat left {};
  struct stat right {};
  return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
         left.st_ino == right.st_ino && left.st_ctim.tv_sec == right.st_ctim.tv_sec &&
         left.st_ctim.tv_nsec == right.st_ctim.tv_nsec;
}

}  // namespace wherry::engine
