#include "engine/transport/memory/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wherry::engine {

void copy_cached(void* destination, const void* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}

#if defined(__x86_64__)
namespace {

// Both take a destination aligned to 64 bytes and a multiple of 64 bytes.
__attribute__((target("avx512f"))) void stream_avx512(std::byte* to, const std::byte* from,
                                                      size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  }
}

__attribute__((target("avx"))) void stream_avx(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
}

void stream_sse2(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
}

using StreamFunction = void (*)(std::byte*, const std::byte*, size_t);

StreamFunction choose_stream() {
  if (__builtin_cpu_supports("avx512f")) return stream_avx512;
  return __builtin_cpu_supports("avx") ? stream_avx : stream_sse2;
}

const StreamFunction kStream = choose_stream();

}  // namespace

void copy_streaming(void* destination, const void* source, size_t bytes) {
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const size_t head = -reinterpret_cast<uintptr_t>(to) & 63;
  if (bytes < head + 64) return copy_cached(to, from, bytes);
  std::memcpy(to, from, head);
  const size_t middle = (bytes - head) & ~size_t{63};
  kStream(to + head, from + head, middle);
  std::memcpy(to + head + middle, from + head + middle, bytes - head - middle);
  _mm_sfence();
}
#else
void copy_streaming(void* destination, const void* source, size_t bytes) {
  copy_cached(destination, source, bytes);
}
#endif

}  // namespace wherry::engine
