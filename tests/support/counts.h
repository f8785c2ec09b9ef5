// How often a test repeats itself: in full with WHERRY_LONG=1, a tenth otherwise.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace wherry::test {

inline uint64_t counted(uint64_t in_full) {
  const char* longer = std::getenv("WHERRY_LONG");
  return longer != nullptr && *longer != '\0' ? in_full : in_full / 10;
}

}  // namespace wherry::test
