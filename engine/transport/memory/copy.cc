#include "engine/transport/memory/copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wherry::engine {

void copy_cached(const CopyPiece& piece) { std::memcpy(piece.to, piece.from, piece.bytes); }

#if defined(__x86_64__)
namespace {

constexpr size_t kLine = 64;
constexpr size_t kStep = 4 * kLine;  // of one piece before the next one's turn

// A line with each width of stores. A function is compiled for one kind of processor and can only
// be inlined into another of that kind, hence three of each.
[[gnu::target("avx512f")]] inline void line_avx512(std::byte* to, const std::byte* from) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

[[gnu::target("avx")]] inline void line_avx(std::byte* to, const std::byte* from) {
  for (size_t i = 0; i < kLine; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
}

inline void line_sse2(std::byte* to, const std::byte* from) {
  for (size_t i = 0; i < kLine; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
}

// The first `bytes` (whole steps) of `count` pieces, whose destinations are aligned to a line.
[[gnu::target("avx512f")]] void steps_avx512(const CopyPiece* pieces, uint32_t count,
                                             size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStep) {
    for (uint32_t k = 0; k < count; ++k) {
      for (size_t i = at; i < at + kStep; i += kLine) {
        line_avx512(pieces[k].to + i, pieces[k].from + i);
      }
    }
  }
}

[[gnu::target("avx")]] void steps_avx(const CopyPiece* pieces, uint32_t count, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStep) {
    for (uint32_t k = 0; k < count; ++k) {
      for (size_t i = at; i < at + kStep; i += kLine) {
        line_avx(pieces[k].to + i, pieces[k].from + i);
      }
    }
  }
}

void steps_sse2(const CopyPiece* pieces, uint32_t count, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStep) {
    for (uint32_t k = 0; k < count; ++k) {
      for (size_t i = at; i < at + kStep; i += kLine) {
        line_sse2(pieces[k].to + i, pieces[k].from + i);
      }
    }
  }
}

using Steps = void (*)(const CopyPiece*, uint32_t, size_t);

Steps choose_steps() {
  if (__builtin_cpu_supports("avx512f")) return steps_avx512;
  return __builtin_cpu_supports("avx") ? steps_avx : steps_sse2;
}

const Steps kSteps = choose_steps();

void advance(CopyPiece* piece, size_t bytes) {
  *piece = {piece->to + bytes, piece->from + bytes, piece->bytes - bytes};
}

}  // namespace

void copy_streaming(const CopyPiece* pieces, uint32_t count) {
  CopyPiece rest[kStreams];
  size_t common = SIZE_MAX;
  for (uint32_t k = 0; k < count; ++k) {
    rest[k] = pieces[k];
    const size_t to_line = -reinterpret_cast<uintptr_t>(rest[k].to) & (kLine - 1);
    const size_t head = std::min(to_line, rest[k].bytes);
    std::memcpy(rest[k].to, rest[k].from, head);
    advance(&rest[k], head);
    common = std::min(common, rest[k].bytes / kStep * kStep);
  }
  kSteps(rest, count, common);
  for (uint32_t k = 0; k < count; ++k) {
    advance(&rest[k], common);
    const size_t steps = rest[k].bytes / kStep * kStep;
    kSteps(&rest[k], 1, steps);
    advance(&rest[k], steps);
    std::memcpy(rest[k].to, rest[k].from, rest[k].bytes);
  }
}

void fence_streaming() { _mm_sfence(); }
#else
void copy_streaming(const CopyPiece* pieces, uint32_t count) {
  std::for_each(pieces, pieces + count, copy_cached);
}

void fence_streaming() {}
#endif

}  // namespace wherry::engine
