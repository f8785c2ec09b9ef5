// The floor of `copy`: the ways this machine has to copy a piece of memory, without any engine.
//
// Any thread. Source and destination do not overlap.
#pragma once

#include <cstddef>
#include <vector>

namespace wherry::bench {

struct CopyMethod {
  const char* name;
  void (*copy)(void* destination, const void* source, size_t bytes);
  void (*finish)();  // after several copies: from then on everybody sees them
};

// Those that this processor has: "memcpy"; on x86 "movsb" and "streaming" too.
std::vector<CopyMethod> copy_methods();

}  // namespace wherry::bench
