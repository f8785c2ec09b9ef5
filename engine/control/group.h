// Unix groups by name. Any thread, may block (name services).
#pragma once

#include <sys/types.h>

#include <string>

#include "shm/status.h"

namespace wherry::engine {

// INVALID_ARGUMENT when there is no group of that name.
Result<gid_t> group_id(const std::string& name);

}  // namespace wherry::engine
