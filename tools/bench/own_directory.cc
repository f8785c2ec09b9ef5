#include "tools/bench/own_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace wherry::bench {
namespace {

std::string base() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (std::string root = variable("WHERRY_RUN_DIR"); !root.empty()) return root;
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  const std::string temporary = variable("TMPDIR");
  return temporary.empty() ? "/tmp" : temporary;
}

}  // namespace

Result<OwnDirectory> OwnDirectory::make() {
  std::string path = base() + "/wherry-bench.XXXXXX";
  if (mkdtemp(path.data()) != nullptr) return OwnDirectory(path);
  return errno_status(Code::kNoResources, "making a directory like " + path, errno);
}

OwnDirectory::~OwnDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace wherry::bench
