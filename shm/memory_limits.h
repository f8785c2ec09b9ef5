// How much memory may still be allocated before the kernel starts killing.
//
// Any thread; reads /proc and /sys/fs/cgroup, so never a poller. Used before anything large is
// allocated in tmpfs or memfds, because fallocate beyond a memory cgroup's limit does not fail: it
// kills.
#pragma once

#include <cstdint>
#include <string>

#include "shm/status.h"

namespace wherry::shm {

struct MemoryRoom {
  uint64_t bytes = UINT64_MAX;  // what may still be allocated
  std::string limit;            // what sets it, such as "MemAvailable" or a cgroup's memory.max
};

// The smallest of MemAvailable and (limit - usage) of this process's memory cgroup and all its
// ancestors (v2 and v1), where the page cache of files does not count as usage. `proc_root` and
// `cgroup_root` are for tests.
MemoryRoom memory_room(const std::string& proc_root = "/proc",
                       const std::string& cgroup_root = "/sys/fs/cgroup");

// NO_RESOURCES, naming limit, room and need, when allocating `bytes` would leave less than a
// reserve of 64 MiB or a sixteenth of the room, whichever is smaller.
Status check_memory_available(uint64_t bytes);
Status check_memory_available(uint64_t bytes, const MemoryRoom& room);

}  // namespace wherry::shm
