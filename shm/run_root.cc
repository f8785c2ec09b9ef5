#include "shm/run_root.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace wherry::shm {
namespace {

// What an engine needs for stats, socket and lock, with a margin.
constexpr uint64_t kRoomBytes = 16ull << 20;
constexpr size_t kMaxNameBytes = 64;

std::string environment(const char* key) {
  const char* value = secure_getenv(key);
  return value == nullptr ? "" : value;
}

// lstat: a link somebody put there is not ours, wherever it leads.
bool is_own_directory(const std::string& path, uid_t uid) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == uid;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool has_room(const std::string& path) {
  struct statvfs status {};
  return access(path.c_str(), W_OK | X_OK) == 0 && statvfs(path.c_str(), &status) == 0 &&
         uint64_t{status.f_bavail} * status.f_frsize >= kRoomBytes;
}

struct Candidate {
  std::string root;
  bool usable = false;
};

std::vector<Candidate> candidates(const RunRootRule& rule) {
  if (!rule.override_root.empty()) return {{rule.override_root, true}};
  if (rule.uid == 0) return {{rule.system_root, true}};
  std::vector<Candidate> all;
  if (!rule.xdg_runtime_dir.empty()) {
    all.push_back({rule.xdg_runtime_dir + "/wherry", is_directory(rule.xdg_runtime_dir)});
  }
  const std::string own = "/wherry-" + std::to_string(rule.uid);
  all.push_back({rule.shm_dir + own, has_room(rule.shm_dir)});
  all.push_back({rule.tmp_dir + own, true});
  return all;
}

}  // namespace

RunRootRule RunRootRule::from_environment() {
  RunRootRule rule;
  rule.override_root = environment("WHERRY_RUN_DIR");
  rule.xdg_runtime_dir = environment("XDG_RUNTIME_DIR");
  rule.uid = geteuid();
  return rule;
}

std::string run_root(const RunRootRule& rule) {
  const std::vector<Candidate> all = candidates(rule);
  return std::find_if(all.begin(), all.end(), [](const Candidate& c) { return c.usable; })->root;
}

std::string run_dir(std::string_view name, const RunRootRule& rule) {
  const std::string tail = "/" + std::string(name);
  for (const Candidate& candidate : candidates(rule)) {
    if (is_own_directory(candidate.root, rule.uid) &&
        is_own_directory(candidate.root + tail, rule.uid)) {
      return candidate.root + tail;
    }
  }
  return run_root(rule) + tail;
}

bool valid_engine_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace wherry::shm
