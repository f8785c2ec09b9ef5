// What the fuzz targets say when an input breaks a promise: the promise, then the end of the
// process.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/support/counts.h"

namespace wherry::fuzz {

inline void check(bool good, const std::string& promise) {
  if (good) return;
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

// Of WHERRY_FUZZ_SEED, else by chance.
inline uint64_t seed() {
  const char* given = std::getenv("WHERRY_FUZZ_SEED");
  if (given != nullptr && *given != '\0') return std::strtoull(given, nullptr, 0);
  return std::random_device()();
}

}  // namespace wherry::fuzz
