// Test data: every byte of a KV layout says which (block, layer, outer, offset, seed) it belongs
// to, so that a swap of blocks, layers or K and V, or an overrun by one byte, shows. Guard bytes
// lie between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace wherry::test {

inline constexpr std::byte kGuard{0xa5};

inline uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185u;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44du;
  return x ^ x >> 33;
}

inline std::byte pattern(uint64_t block, uint64_t layer, uint64_t outer, uint64_t offset,
                         uint64_t seed) {
  const uint64_t word =
      mix(seed * 0x9e3779b97f4a7c15u ^ block << 40 ^ layer << 28 ^ outer << 24 ^ (offset >> 3));
  return static_cast<std::byte>(word >> (offset & 7) * 8);
}

// Fills `bytes` at `at` with the pattern of one (block, layer, outer).
inline void fill(std::byte* at, uint64_t bytes, uint64_t block, uint64_t layer, uint64_t outer,
                 uint64_t seed) {
  for (uint64_t i = 0; i < bytes; ++i) at[i] = pattern(block, layer, outer, i, seed);
}

// The first offset that differs, or `bytes`.
inline uint64_t first_difference(const std::byte* at, uint64_t bytes, uint64_t block,
                                 uint64_t layer, uint64_t outer, uint64_t seed) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (at[i] != pattern(block, layer, outer, i, seed)) return i;
  }
  return bytes;
}

}  // namespace wherry::test
