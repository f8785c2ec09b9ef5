// Where an engine of a given name has its run directory: the one rule for engine, clients and
// tools.
//
// WHERRY_RUN_DIR in the environment names the root. Else root's engines live in /run/wherry, and
// those of ordinary users in the first of $XDG_RUNTIME_DIR/wherry, /dev/shm/wherry-<uid> and
// /tmp/wherry-<uid> that already holds a directory of the name, owned by the user; when none does,
// in the first that is usable (for /dev/shm: that has room). Both sides therefore agree, also after
// /dev/shm has filled up. Any thread; looks at the file system, makes nothing, cannot fail.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace wherry::shm {

inline constexpr std::string_view kDefaultEngineName = "default";

// What the rule looks at; the members are set otherwise only by tests.
struct RunRootRule {
  std::string override_root;    // WHERRY_RUN_DIR
  std::string xdg_runtime_dir;  // XDG_RUNTIME_DIR
  uid_t uid = 0;                // effective
  std::string system_root = "/run/wherry";
  std::string shm_dir = "/dev/shm";
  std::string tmp_dir = "/tmp";

  static RunRootRule from_environment();
};

// The directory that an engine called `name` has or would get.
std::string run_dir(std::string_view name,
                    const RunRootRule& rule = RunRootRule::from_environment());

// Where a new engine's directory would be made; also where the locks on cores lie.
std::string run_root(const RunRootRule& rule = RunRootRule::from_environment());

// Whether an engine may be called so: 1 to 64 of [A-Za-z0-9._-], and neither "." nor "..".
bool valid_engine_name(std::string_view name);

}  // namespace wherry::shm
