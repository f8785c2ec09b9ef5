#include "engine/control/run_dir.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/control/group.h"
#include "engine/control/lock_file.h"
#include "shm/run_root.h"

namespace wherry::engine {
namespace {

constexpr size_t kMaxSocketPath = 107;
constexpr mode_t kWritableByOthers = 022;

Status refuse(const std::string& path, const std::string& wanted, const std::string& got,
              const std::string& remedy) {
  return {Code::kNotPermitted,
          "run directory " + path + ": wanted " + wanted + ", got " + got + "; " + remedy};
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

// Who may look in: the owner, the socket's group, everybody if the socket is for everybody.
mode_t wanted_mode(const SocketConfig& socket) {
  mode_t mode = 0700;
  if (!socket.group.empty()) mode |= 0050;
  if ((socket.mode & 0006) != 0) mode |= 0055;
  return mode;
}

// The part before the last slash, without slashes at the end of either.
std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

Status not_made(const std::string& path) {
  return refuse(path, "to make it", std::strerror(errno), "choose another run_dir");
}

// Makes `path` and what is missing above it.
Status make_ancestors(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || path == "/") return not_made(path);
  if (Status status = make_ancestors(parent_of(path), mode); !status.ok()) return status;
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  return not_made(path);
}

// The directory in which the run directory lies: nobody else may be able to put another in its
// place.
Result<shm::UniqueFd> open_parent(const std::string& path, mode_t mode) {
  if (Status status = make_ancestors(path, mode); !status.ok()) return status;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0)
    return errno_status(Code::kNotPermitted, "run directory " + path, errno);
  const bool system_link = S_ISLNK(info.st_mode) && info.st_uid == 0;  // such as /var/run
  shm::UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (system_link ? 0 : O_NOFOLLOW)));
  if (!fd.valid()) {
    if (S_ISLNK(info.st_mode))
      return refuse(path, "a directory", "a link", "remove it, or choose another run_dir");
    return errno_status(Code::kNotPermitted, "run directory " + path, errno);
  }
  if (fstat(fd.get(), &info) != 0)
    return errno_status(Code::kNotPermitted, "run directory " + path, errno);
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return refuse(path, "one that belongs to root or this user",
                  "one of uid " + std::to_string(info.st_uid), "choose another run_dir");
  }
  if ((info.st_mode & kWritableByOthers) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return refuse(path, "one that others cannot write to, or with the sticky bit",
                  "mode " + octal(info.st_mode), "run chmod go-w on it, or choose another run_dir");
  }
  return fd;
}

Result<shm::UniqueFd> open_directory(const std::string& path, const SocketConfig& socket) {
  const mode_t mode = wanted_mode(socket);
  const mode_t parent_mode = geteuid() == 0 ? 0755 : mode | (mode & 050 ? 0011 : 0);
  Result<shm::UniqueFd> parent = open_parent(parent_of(path), parent_mode);
  if (!parent.ok()) return parent;
  const std::string name = path.substr(path.find_last_of('/') + 1);
  const bool made = mkdirat(parent->get(), name.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return not_made(path);
  shm::UniqueFd fd(
      openat(parent->get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return refuse(path, "a directory, not a link", std::strerror(errno),
                  "remove it, or choose another run_dir");
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0)
    return errno_status(Code::kNotPermitted, "run directory " + path, errno);
  if (info.st_uid != geteuid()) {
    return refuse(path, "one that belongs to this user (uid " + std::to_string(geteuid()) + ")",
                  "one of uid " + std::to_string(info.st_uid),
                  "choose another run_dir or run as that user");
  }
  // The group first: changing it may clear mode bits.
  if (!socket.group.empty()) {
    const Result<gid_t> gid = group_id(socket.group);
    if (!gid.ok()) return gid.status();
    if (info.st_gid != *gid && fchown(fd.get(), static_cast<uid_t>(-1), *gid) != 0) {
      return errno_status(Code::kNotPermitted, "giving " + path + " to the group " + socket.group,
                          errno);
    }
  }
  if (fchmod(fd.get(), mode) != 0)
    return errno_status(Code::kNotPermitted, "setting the mode of " + path, errno);
  return fd;
}

}  // namespace

Result<RunDir> RunDir::open(const Config& config, const RunDirOptions& options) {
  RunDir dir;
  dir.path_ = config.run_dir.empty() ? shm::run_dir(config.name) : config.run_dir;
  while (dir.path_.size() > 1 && dir.path_.back() == '/') dir.path_.pop_back();
  if (dir.path_.empty() || dir.path_[0] != '/' || dir.path_ == "/" ||
      dir.socket_path().size() > kMaxSocketPath) {
    return Status(Code::kInvalidArgument,
                  "run directory: wanted an absolute path whose engine.sock has at most " +
                      std::to_string(kMaxSocketPath) + " bytes, got \"" + dir.path_ +
                      "\"; set a shorter run_dir");
  }
  const Result<shm::UniqueFd> directory = open_directory(dir.path_, config.socket);
  if (!directory.ok()) return directory.status();
  struct statfs file_system {};
  if (fstatfs(directory->get(), &file_system) == 0 && file_system.f_type != TMPFS_MAGIC) {
    dir.warnings_.push_back(
        "run directory " + dir.path_ +
        ": wanted a tmpfs, got another file system, so that every counter update may cost a "
        "write to disk; set run_dir to a place in /dev/shm or another tmpfs");
  }

  Result<shm::UniqueFd> lock = take_lock_file(dir.path_ + "/engine.lock");
  if (!lock.ok()) {
    return lock.code() == Code::kAlreadyExists
               ? lock.status().with_context("another engine has the run directory")
               : lock.status();
  }
  if (const std::optional<LockOwner> former = read_owner(lock->get())) {
    dir.taken_over_ = true;
    // The lock goes before the process does; until that is gone its queue pairs may still write.
    if (Status status = wait_until_gone(*former, options.takeover_timeout); !status.ok()) {
      return status.with_context("run directory " + dir.path_);
    }
  }
  (void)fchmod(lock->get(), 0644);  // readers of the directory may ask who owns it
  if (Status status = write_owner(lock->get(), this_process(config.name)); !status.ok())
    return status;
  dir.lock_ = std::move(*lock);
  return dir;
}

void RunDir::close() {
  if (!lock_.valid()) return;
  unlink(socket_path().c_str());
  (void)write_owner(lock_.get(), std::nullopt);  // no process to wait for: this one may live on
  lock_.reset();
}

}  // namespace wherry::engine
