#include "shm/memory_limits.h"

#include <algorithm>

#include "shm/cgroup.h"

namespace wherry::shm {
namespace {

constexpr uint64_t kReserve = 64ull << 20;
constexpr uint64_t kReserveShare = 16;

// Names of the same things in the two versions.
struct Files {
  const char* usage;
  const char* limits[2];
  const char* cache_keys[2];
};
// Above memory.high the kernel throttles until nothing moves, so it counts as a limit too.
constexpr Files kV2 = {
    "/memory.current", {"/memory.max", "/memory.high"}, {"inactive_file", "active_file"}};
constexpr Files kV1 = {"/memory.usage_in_bytes",
                       {"/memory.limit_in_bytes", nullptr},
                       {"total_inactive_file", "total_active_file"}};

void consider(uint64_t bytes, std::string limit, MemoryRoom* room) {
  if (bytes >= room->bytes) return;
  room->bytes = bytes;
  room->limit = std::move(limit);
}

void consider_group(const CgroupDirectory& directory, MemoryRoom* room) {
  const Files& files = directory.v2 ? kV2 : kV1;
  const std::optional<uint64_t> usage = read_number_file(directory.path + files.usage);
  if (!usage) return;
  // Usage counts the page cache of files, which gives way. (Pages of tmpfs and memfds are not in
  // these two figures.)
  uint64_t cache = 0;
  if (const std::optional<std::string> stat = read_small_file(directory.path + "/memory.stat")) {
    for (const char* key : files.cache_keys) cache += number_of_key(*stat, key).value_or(0);
  }
  const uint64_t used = *usage - std::min(cache, *usage);
  for (const char* name : files.limits) {
    if (name == nullptr) continue;
    const std::optional<uint64_t> limit = read_number_file(directory.path + name);
    if (limit) consider(*limit - std::min(used, *limit), directory.path + name, room);
  }
}

}  // namespace

MemoryRoom memory_room(const std::string& proc_root, const std::string& cgroup_root) {
  MemoryRoom room;
  room.limit = "no known limit";
  if (const std::optional<std::string> meminfo = read_small_file(proc_root + "/meminfo")) {
    if (const std::optional<uint64_t> kib = number_of_key(*meminfo, "MemAvailable")) {
      consider(*kib * 1024, "MemAvailable of " + proc_root + "/meminfo", &room);
    }
  }
  for (const CgroupDirectory& directory : cgroup_directories("memory", proc_root, cgroup_root)) {
    consider_group(directory, &room);
  }
  return room;
}

Status check_memory_available(uint64_t bytes, const MemoryRoom& room) {
  const uint64_t reserve = std::min(kReserve, room.bytes / kReserveShare);
  const uint64_t allowed = room.bytes - reserve;
  if (bytes <= allowed) return {};
  return {Code::kNoResources, "memory: wanted " + std::to_string(bytes) + " bytes, got room for " +
                                  std::to_string(allowed) + " (" + room.limit + " leaves " +
                                  std::to_string(room.bytes) + ", a reserve of " +
                                  std::to_string(reserve) +
                                  " is kept); ask for less, free memory or raise that limit"};
}

Status check_memory_available(uint64_t bytes) {
  return check_memory_available(bytes, memory_room());
}

}  // namespace wherry::shm
