#include "engine/control/lock_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "shm/cgroup.h"

namespace wherry::engine {
namespace {

constexpr size_t kMaxText = 256;

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The path names the file that is open: nobody replaced it meanwhile.
bool is_file_at(int fd, const std::string& path) {
  struct stat open_file {};
  struct stat at_path {};
  return fstat(fd, &open_file) == 0 && lstat(path.c_str(), &at_path) == 0 &&
         open_file.st_dev == at_path.st_dev && open_file.st_ino == at_path.st_ino;
}

}  // namespace

LockOwner this_process(std::string note) {
  const pid_t pid = getpid();
  return {pid, start_time_of(pid).value_or(0), std::move(note)};
}

std::optional<uint64_t> start_time_of(pid_t pid) {
  // Field 22, where field 2 is a name in brackets that may hold anything.
  constexpr int kStartTime = 22;
  const std::optional<std::string> stat =
      shm::read_small_file("/proc/" + std::to_string(pid) + "/stat");
  if (!stat) return std::nullopt;
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat->substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < kStartTime; ++field) fields >> skipped;
  uint64_t start_time = 0;
  return fields >> start_time ? std::optional<uint64_t>(start_time) : std::nullopt;
}

Result<shm::UniqueFd> take_lock_file(const std::string& path) {
  while (true) {
    shm::UniqueFd fd(
        open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (!fd.valid()) {
      return Status(Code::kNotPermitted, "lock file " + path + ": wanted a regular file, got " +
                                             (errno == ELOOP ? "a link" : std::strerror(errno)) +
                                             "; remove it, or see to its directory");
    }
    struct stat info {};
    if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return Status(Code::kNotPermitted,
                    "lock file " + path + ": wanted a regular file, got something else; remove it");
    }
    struct flock lock = whole_file();
    if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES)
        return errno_status(Code::kInternal, "locking " + path, errno);
      return Status(Code::kAlreadyExists,
                    "lock file " + path + ": wanted it free, got one held by " +
                        describe(read_owner(fd.get())) + "; end that one first");
    }
    if (is_file_at(fd.get(), path)) return fd;
  }
}

bool is_locked(const std::string& path) {
  const shm::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock lock = whole_file();
  return fd.valid() && fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::optional<LockOwner> read_owner(int fd) {
  char text[kMaxText];
  const ssize_t got = pread(fd, text, sizeof(text), 0);
  if (got <= 0) return std::nullopt;
  std::istringstream fields(std::string(text, static_cast<size_t>(got)));
  LockOwner owner;
  if (!(fields >> owner.pid >> owner.start_time) || owner.pid <= 0) return std::nullopt;
  fields >> owner.note;
  return owner;
}

std::string describe(const std::optional<LockOwner>& owner) {
  if (!owner) return "a process that has not said which";
  return "pid " + std::to_string(owner->pid) +
         (owner->note.empty() ? "" : " (" + owner->note + ")");
}

Status write_owner(int fd, const std::optional<LockOwner>& owner) {
  const std::string text = owner ? std::to_string(owner->pid) + " " +
                                       std::to_string(owner->start_time) + " " + owner->note + "\n"
                                 : "";
  // The new text first, then its length: a reader never finds less than a whole line.
  if (pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ftruncate(fd, static_cast<off_t>(text.size())) != 0) {
    return errno_status(Code::kNoResources, "writing a lock file", errno);
  }
  return {};
}

Status wait_until_gone(const LockOwner& owner, std::chrono::milliseconds timeout) {
  if (owner.pid == getpid()) return {};
  const shm::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, owner.pid, 0)));
  if (!pidfd.valid()) {
    // No such process, or the number is that of a thread of some later one (EINVAL, ENOENT).
    return errno == ESRCH || errno == EINVAL || errno == ENOENT
               ? Status()
               : errno_status(Code::kInternal, "watching " + describe(owner), errno);
  }
  // Read after the descriptor was opened: if it is the former process now, the descriptor is its.
  if (start_time_of(owner.pid) != owner.start_time) return {};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd gone{pidfd.get(), POLLIN, 0};
    const int ready = poll(&gone, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return {};
    if (ready == 0) break;
    if (errno != EINTR)
      return errno_status(Code::kInternal, "waiting for " + describe(owner), errno);
  }
  return {Code::kTimedOut, "former owner: wanted its process gone, got " + describe(owner) +
                               " still there after " + std::to_string(timeout.count()) +
                               " ms; see what it hangs on, or kill it"};
}

}  // namespace wherry::engine
