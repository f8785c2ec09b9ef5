// Where this process stands in the control groups: the directories of a controller, from its own
// group up to the root that is visible here.
//
// Any thread; reads files, so never a poller. Nothing fails: what cannot be read is not listed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wherry::shm {

struct CgroupDirectory {
  std::string path;
  bool v2 = false;
};

// Directories for `controller` ("memory", "cpu"), own group first; of v2 and v1 where both are
// mounted. A container that sees only its own part of the tree gets that part.
std::vector<CgroupDirectory> cgroup_directories(std::string_view controller,
                                                const std::string& proc_root = "/proc",
                                                const std::string& cgroup_root = "/sys/fs/cgroup");

// The first bytes of a small file, without the newline at the end; nullopt when it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

// The number a small file holds; nullopt for "max", for anything else that is no number, and for no
// file.
std::optional<uint64_t> read_number_file(const std::string& path);

// The number behind `key` in a text of lines "key number" or "key: number kB" (not scaled).
std::optional<uint64_t> number_of_key(std::string_view text, std::string_view key);

}  // namespace wherry::shm
