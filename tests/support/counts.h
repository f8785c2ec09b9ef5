// How often a test repeats itself: in full with WHERRY_LONG=1, a tenth otherwise, half of that in
// the sanitizer builds, where everything is slow.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace wherry::test {

inline uint64_t counted(uint64_t in_full) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return in_full / 20;
#else
  const char* longer = std::getenv("WHERRY_LONG");
  return longer != nullptr && *longer != '\0' ? in_full : in_full / 10;
#endif
}

}  // namespace wherry::test
