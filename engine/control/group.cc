#include "engine/control/group.h"

#include <grp.h>

#include <cerrno>
#include <vector>

namespace wherry::engine {

Result<gid_t> group_id(const std::string& name) {
  std::vector<char> buffer(4096);
  group entry{};
  group* found = nullptr;
  int error = 0;
  while ((error = getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found)) ==
         ERANGE) {
    buffer.resize(buffer.size() * 2);
  }
  if (found == nullptr) {
    return Status(Code::kInvalidArgument, "group: wanted one of this host, got \"" + name +
                                              "\"; create it or name another");
  }
  return entry.gr_gid;
}

}  // namespace wherry::engine
