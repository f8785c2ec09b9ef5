// Histogram: how often durations of each size were seen, in buckets an eighth of an octave wide.
//
// Lies in shared memory, all zero at first. One writer (record); any thread or process may read at
// any time. A quantile is the upper end of its bucket: at most 12.5 % too high, up to 2^40 ns (18
// minutes); longer ones count as that. Nothing fails.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "shm/counter.h"

namespace wherry::shm {

inline constexpr uint32_t kHistogramOctave = 8;        // buckets in an octave
inline constexpr uint32_t kHistogramMaxExponent = 40;  // durations below 2^40 ns are told apart
inline constexpr uint32_t kHistogramBuckets = (kHistogramMaxExponent - 2) * kHistogramOctave;

// Durations below 8 ns have a bucket each; above, the three bits behind the leading one choose it.
constexpr uint32_t histogram_bucket(uint64_t ns) {
  if (ns < kHistogramOctave) return static_cast<uint32_t>(ns);
  const auto exponent = static_cast<uint32_t>(std::bit_width(ns)) - 1;
  if (exponent >= kHistogramMaxExponent) return kHistogramBuckets - 1;
  return (exponent - 2) * kHistogramOctave + static_cast<uint32_t>(ns >> (exponent - 3) & 7);
}

// The longest duration that falls into the bucket.
constexpr uint64_t histogram_upper(uint32_t bucket) {
  if (bucket < kHistogramOctave) return bucket;
  const uint32_t shift = bucket / kHistogramOctave - 1;
  return ((uint64_t{kHistogramOctave} + bucket % kHistogramOctave + 1) << shift) - 1;
}

// A reader's own copy; copies can be merged.
struct HistogramCopy {
  std::array<uint64_t, kHistogramBuckets> buckets{};
  uint64_t count = 0;
  uint64_t sum_ns = 0;
  uint64_t max_ns = 0;

  void merge(const HistogramCopy& other) {
    for (uint32_t i = 0; i < kHistogramBuckets; ++i) buckets[i] += other.buckets[i];
    count += other.count;
    sum_ns += other.sum_ns;
    if (other.max_ns > max_ns) max_ns = other.max_ns;
  }

  // The duration that `per_mille` of those recorded do not exceed: 500 = median. 0 when there is
  // none.
  uint64_t quantile(uint32_t per_mille) const {
    if (count == 0) return 0;
    const double wanted = static_cast<double>(count) * per_mille / 1000.0;
    double seen = 0;
    for (uint32_t i = 0; i < kHistogramBuckets; ++i) {
      seen += static_cast<double>(buckets[i]);
      // The longest one is known exactly: no quantile lies above it.
      if (buckets[i] != 0 && seen >= wanted) {
        const uint64_t upper = histogram_upper(i);
        return upper < max_ns || max_ns == 0 ? upper : max_ns;
      }
    }
    return max_ns;
  }
};

struct Histogram {
  Counter buckets[kHistogramBuckets];
  Counter sum_ns;
  Counter max_ns;

  void record(uint64_t ns) {
    buckets[histogram_bucket(ns)].add(1);
    sum_ns.add(ns);
    if (ns > max_ns.get()) max_ns.set(ns);
  }

  HistogramCopy copy() const {
    HistogramCopy copy;
    for (uint32_t i = 0; i < kHistogramBuckets; ++i) {
      copy.buckets[i] = buckets[i].get();
      copy.count += copy.buckets[i];  // not kept apart: a copy always adds up
    }
    copy.sum_ns = sum_ns.get();
    copy.max_ns = max_ns.get();
    return copy;
  }
};
static_assert(kHistogramBuckets == 304 && sizeof(Histogram) == 306 * 8);

}  // namespace wherry::shm
