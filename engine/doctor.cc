#include "engine/doctor.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "engine/control/affinity.h"
#include "engine/control/lock_file.h"
#include "shm/cgroup.h"
#include "shm/file_descriptor.h"
#include "shm/layout.h"
#include "shm/memory_limits.h"
#include "shm/run_root.h"

namespace wherry::engine {
namespace {

std::string size_text(uint64_t bytes) {
  char text[32];
  if (bytes >= uint64_t{1} << 30) {
    std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(bytes) / (1u << 30));
  } else {
    std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1u << 20));
  }
  return text;
}

Finding kernel() {
  constexpr int kMajor = 5;
  constexpr int kMinor = 14;
  utsname name{};
  int major = 0;
  int minor = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) {
    return {Verdict::kNote, "kernel", "its version cannot be read", ""};
  }
  const std::string what = std::string("Linux ") + name.release;
  if (major > kMajor || (major == kMajor && minor >= kMinor))
    return {Verdict::kGood, "kernel", what, ""};
  return {Verdict::kBad, "kernel", what, "use Linux 5.14 or newer"};
}

Finding cores(const Config& config) {
  const Result<CoreSet> set = usable_cores();
  if (!set.ok()) return {Verdict::kBad, "cores", set.status().message(), ""};
  const Result<std::vector<int>> assigned = assign_cores(config, *set);
  if (!assigned.ok())
    return {Verdict::kBad, "cores", assigned.status().message(), "change the config"};
  if (config.pollers.size() + 1 > set->allowed.size()) {
    return {Verdict::kNote, "cores",
            set->to_string() + " for " + std::to_string(config.pollers.size()) + " pollers",
            "latency suffers while everything is busy: allow this process more cores"};
  }
  return {Verdict::kGood, "cores", set->to_string(), ""};
}

// What channels take if every client has one of the default size.
uint64_t channel_bytes(const Config& config) {
  const shm::ChannelSizes sizes{config.channels.submission_slots,
                                config.channels.notification_slots};
  return make_header(shm::SegmentKind::kC2e, sizes).total_bytes +
         make_header(shm::SegmentKind::kE2c, sizes).total_bytes;
}

Finding memory(const Config& config) {
  const shm::MemoryRoom room = shm::memory_room();
  const uint64_t one = channel_bytes(config);
  const uint64_t all = one * config.limits.clients;
  const std::string what = "room for " + size_text(room.bytes) + " (" + room.limit +
                           "); one channel takes " + size_text(one) + ", one of each of " +
                           std::to_string(config.limits.clients) + " clients " + size_text(all);
  if (!shm::check_memory_available(one, room).ok()) {
    return {Verdict::kBad, "memory", what,
            "free memory, raise that limit, or lower /channels/submission_slots"};
  }
  if (!shm::check_memory_available(all, room).ok()) {
    return {Verdict::kNote, "memory", what,
            "raise that limit, or lower /limits/clients or /channels/submission_slots"};
  }
  return {Verdict::kGood, "memory", what, ""};
}

Finding sealed_memory() {
#ifndef F_SEAL_FUTURE_WRITE
  constexpr int F_SEAL_FUTURE_WRITE = 0x0010;  // NOLINT: the kernel's name
#endif
  const shm::UniqueFd fd(memfd_create("wherry-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0) {
    return {Verdict::kBad, "sealed memory", std::strerror(errno),
            "look at the container's seccomp filter"};
  }
  return {Verdict::kGood, "sealed memory", "memfd_create and its seals work", ""};
}

Finding locked_memory() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {Verdict::kGood, "locked memory", "unlimited", ""};
  }
  return {Verdict::kNote, "locked memory", "limit of " + size_text(limit.rlim_cur),
          "copies on this host do not need it; for an RDMA device set LimitMEMLOCK=infinity "
          "(systemd) or "
          "--ulimit memlock=-1 (docker)"};
}

Finding huge_pages() {
  const std::optional<std::string> meminfo = shm::read_small_file("/proc/meminfo");
  const uint64_t total = meminfo ? shm::number_of_key(*meminfo, "HugePages_Total").value_or(0) : 0;
  const uint64_t free = meminfo ? shm::number_of_key(*meminfo, "HugePages_Free").value_or(0) : 0;
  const uint64_t kib = meminfo ? shm::number_of_key(*meminfo, "Hugepagesize").value_or(0) : 0;
  if (total == 0) {
    return {Verdict::kNote, "huge pages", "none reserved",
            "regions with huge pages will be refused; set vm.nr_hugepages to have some"};
  }
  return {Verdict::kGood, "huge pages",
          std::to_string(free) + " of " + std::to_string(total) + " free, " +
              size_text(kib * 1024) + " each",
          ""};
}

Finding descriptors(const Config& config) {
  constexpr uint64_t kOwn = 64;
  // Socket, pidfd, and eventfd and wake-up of a channel.
  constexpr uint64_t kOfClient = 8;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return {Verdict::kNote, "descriptors", std::strerror(errno), ""};
  const uint64_t wanted = kOwn + kOfClient * config.limits.clients;
  // The engine raises its limit to the hard one.
  const std::string what = "limit of " + std::to_string(limit.rlim_max) + ", " +
                           std::to_string(config.limits.clients) + " clients take about " +
                           std::to_string(wanted) + ", and one more for each memory they register";
  if (limit.rlim_max >= 2 * wanted) return {Verdict::kGood, "descriptors", what, ""};
  return {Verdict::kNote, "descriptors", what, "raise ulimit -Hn, or lower /limits/clients"};
}

// The longest part of the path that is there.
std::string existing_part(std::string path) {
  struct stat info {};
  while (path.size() > 1 && lstat(path.c_str(), &info) != 0) {
    const size_t slash = path.rfind('/');
    path.resize(slash == 0 || slash == std::string::npos ? 1 : slash);
  }
  return path;
}

Finding run_directory(const Config& config) {
  const std::string path = config.run_dir.empty() ? shm::run_dir(config.name) : config.run_dir;
  const std::string lock_path = path + "/engine.lock";
  const auto finding = [&](Verdict verdict, const std::string& what, const std::string& remedy) {
    return Finding{verdict, "run directory", path + ": " + what, remedy};
  };
  if (is_locked(lock_path)) {
    const shm::UniqueFd lock(
        open(lock_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    return finding(Verdict::kBad, "an engine runs here, " + describe(read_owner(lock.get())),
                   "end it with wherryctl, or give this one another --name");
  }
  const std::string there = existing_part(path);
  struct stat info {};
  if (lstat(there.c_str(), &info) != 0)
    return finding(Verdict::kBad, std::strerror(errno), "set run_dir");
  if (there == path && (!S_ISDIR(info.st_mode) || info.st_uid != geteuid())) {
    return finding(Verdict::kBad,
                   S_ISDIR(info.st_mode) ? "it belongs to uid " + std::to_string(info.st_uid)
                                         : "it is not a directory",
                   "remove it, or set run_dir");
  }
  if (access(there.c_str(), W_OK | X_OK) != 0) {
    return finding(Verdict::kBad, there + " cannot be written to",
                   "set run_dir, or XDG_RUNTIME_DIR");
  }
  struct statfs file_system {};
  if (statfs(there.c_str(), &file_system) == 0 && file_system.f_type != TMPFS_MAGIC) {
    return finding(
        Verdict::kNote, "not on a tmpfs",
        "counters would be written to disk; set run_dir to a place in /dev/shm or another tmpfs");
  }
  return finding(Verdict::kGood, there == path ? "free" : "can be made", "");
}

}  // namespace

std::vector<Finding> examine_host(const Config& config) {
  return {kernel(),     cores(config),   memory(config),      sealed_memory(),
          huge_pages(), locked_memory(), descriptors(config), run_directory(config)};
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const char* mark = finding.verdict == Verdict::kGood
                           ? "ok  "
                           : (finding.verdict == Verdict::kNote ? "note" : "BAD ");
    text += std::string(mark) + "  " + finding.subject + ": " + finding.what + "\n";
    if (!finding.remedy.empty()) text += "      -> " + finding.remedy + "\n";
  }
  return text;
}

bool is_ready(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kBad) return false;
  }
  return true;
}

}  // namespace wherry::engine
