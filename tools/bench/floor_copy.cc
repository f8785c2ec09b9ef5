#include "tools/bench/floor_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wherry::bench {
namespace {

void copy_plain(void* destination, const void* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}

void finish_plain() { std::atomic_thread_fence(std::memory_order_release); }

#if defined(__x86_64__)

void copy_movsb(void* destination, const void* source, size_t bytes) {
  asm volatile("rep movsb" : "+D"(destination), "+S"(source), "+c"(bytes) : : "memory");
}

// Pieces are whole lines, and begin at one. The source is asked for some lines ahead, since its
// loads are all that a core waits for here; but never beyond the piece.
void ask_ahead(const char* from, size_t at, size_t bytes) {
  constexpr size_t kAhead = 512;
  _mm_prefetch(from + std::min(at + kAhead, bytes - 64), _MM_HINT_T0);
}

__attribute__((target("avx512f"))) void stream_512(void* destination, const void* source,
                                                   size_t bytes) {
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  for (size_t i = 0; i < bytes; i += 64) {
    ask_ahead(from, i, bytes);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  }
}

void stream_128(void* destination, const void* source, size_t bytes) {
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  for (size_t i = 0; i < bytes; i += 64) {
    ask_ahead(from, i, bytes);
    for (size_t part = i; part < i + 64; part += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + part)));
    }
  }
}

void finish_streaming() { _mm_sfence(); }

#endif

}  // namespace

std::vector<CopyMethod> copy_methods() {
  std::vector<CopyMethod> methods = {{"memcpy", copy_plain, finish_plain}};
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  methods.push_back({"movsb", copy_movsb, finish_plain});
  methods.push_back({"streaming", wide ? stream_512 : stream_128, finish_streaming});
#endif
  return methods;
}

}  // namespace wherry::bench
