#include "tools/engine_life.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shm/file_descriptor.h"

namespace wherry::tools {
namespace {

enum class Lock { kHeld, kFree, kAbsent, kUnknown };

struct LockReport {
  Lock lock = Lock::kUnknown;
  uint64_t pid = 0;  // that the file names, 0 = none
  int error = 0;
};

LockReport ask(const std::string& path) {
  shm::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return {errno == ENOENT ? Lock::kAbsent : Lock::kUnknown, 0, errno};
  // Would a read lock meet somebody's write lock? Only asked, never taken.
  struct flock question {};
  question.l_type = F_RDLCK;
  question.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_OFD_GETLK, &question) != 0) return {Lock::kUnknown, 0, errno};
  if (question.l_type == F_UNLCK) return {Lock::kFree, 0, 0};
  std::array<char, 32> text{};
  const ssize_t got = pread(fd.get(), text.data(), text.size() - 1, 0);
  return {Lock::kHeld, got > 0 ? std::strtoull(text.data(), nullptr, 10) : 0, 0};
}

LifeReport judge_owner(const shm::StatsReader& stats, uint64_t owner, uint64_t now_wall_ns) {
  const uint64_t pid = stats.identity().pid;
  if (owner != 0 && owner != pid) {
    return {Life::kStale, "written by pid " + std::to_string(pid) + ", but pid " +
                              std::to_string(owner) + " now owns the run directory"};
  }
  const uint64_t beat = stats.state().beat_wall_ns;
  if (now_wall_ns > beat && now_wall_ns - beat > kStaleAfterNs) {
    return {Life::kStale, "the process is there, but its control thread has not beaten for " +
                              std::to_string((now_wall_ns - beat) / 1'000'000'000) + " s"};
  }
  return {Life::kLive, ""};
}

}  // namespace

std::string_view life_name(Life life) {
  constexpr std::array<std::string_view, 6> kNames = {"live",    "stale", "dead",
                                                      "stopped", "copy",  "unknown"};
  return kNames[static_cast<size_t>(life)];
}

LifeReport engine_life(const shm::StatsReader& stats, const std::string& stats_path,
                       uint64_t now_wall_ns) {
  const size_t slash = stats_path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : stats_path.substr(0, slash);
  const LockReport lock = ask(directory + "/engine.lock");
  if (lock.lock == Lock::kHeld) return judge_owner(stats, lock.pid, now_wall_ns);
  if (stats.state().state == shm::EngineState::kStopped) return {Life::kStopped, ""};
  if (lock.lock == Lock::kFree) return {Life::kDead, "nobody holds engine.lock"};
  if (lock.lock == Lock::kAbsent) return {Life::kCopy, "no engine.lock beside the file"};
  return {Life::kUnknown, std::string("engine.lock cannot be asked: ") + std::strerror(lock.error)};
}

}  // namespace wherry::tools
