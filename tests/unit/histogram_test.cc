#include "shm/histogram.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace wherry::shm {
namespace {

TEST(Histogram, BucketsMeetWithoutGapOrOverlap) {
  for (uint32_t bucket = 0; bucket + 1 < kHistogramBuckets; ++bucket) {
    EXPECT_EQ(histogram_bucket(histogram_upper(bucket)), bucket);
    EXPECT_EQ(histogram_bucket(histogram_upper(bucket) + 1), bucket + 1);
  }
  EXPECT_EQ(histogram_upper(kHistogramBuckets - 1), (uint64_t{1} << 40) - 1);
}

TEST(Histogram, ABucketsUpperEndIsAtMostAnEighthAboveWhatFellIntoIt) {
  for (uint64_t ns = 1; ns < uint64_t{1} << 40; ns += ns / 7 + 1) {
    const uint64_t upper = histogram_upper(histogram_bucket(ns));
    EXPECT_GE(upper, ns);
    EXPECT_LE(upper - ns, ns / 8) << ns;
  }
}

TEST(Histogram, DurationsBeyondTheLastBucketCountInIt) {
  for (const uint64_t ns : {uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX}) {
    EXPECT_EQ(histogram_bucket(ns), kHistogramBuckets - 1);
  }
}

TEST(Histogram, QuantilesAreThoseOfWhatWasRecorded) {
  const auto histogram = std::make_unique<Histogram>();
  for (uint64_t i = 0; i < 980; ++i) histogram->record(1000);
  for (uint64_t i = 0; i < 15; ++i) histogram->record(100'000);
  for (uint64_t i = 0; i < 5; ++i) histogram->record(7'000'000);
  const HistogramCopy copy = histogram->copy();
  EXPECT_EQ(copy.count, 1000u);
  EXPECT_EQ(copy.sum_ns, 980u * 1000 + 15u * 100'000 + 5u * 7'000'000);
  EXPECT_EQ(histogram_bucket(copy.quantile(500)), histogram_bucket(1000));
  EXPECT_EQ(histogram_bucket(copy.quantile(980)), histogram_bucket(1000));
  EXPECT_EQ(histogram_bucket(copy.quantile(990)), histogram_bucket(100'000));
  EXPECT_EQ(copy.quantile(999), 7'000'000u);  // not above the longest one
}

TEST(Histogram, AnEmptyOneHasQuantileZero) {
  const HistogramCopy copy = std::make_unique<Histogram>()->copy();
  EXPECT_EQ(copy.count, 0u);
  EXPECT_EQ(copy.quantile(999), 0u);
}

TEST(Histogram, MergedCopiesHoldWhatBothRecorded) {
  const auto one = std::make_unique<Histogram>();
  const auto other = std::make_unique<Histogram>();
  one->record(10);
  other->record(5'000);
  other->record(6'000'000);
  HistogramCopy sum = one->copy();
  sum.merge(other->copy());
  EXPECT_EQ(sum.count, 3u);
  EXPECT_EQ(sum.sum_ns, 6'005'010u);
  EXPECT_EQ(sum.max_ns, 6'000'000u);
  EXPECT_EQ(histogram_bucket(sum.quantile(500)), histogram_bucket(5'000));
}

}  // namespace
}  // namespace wherry::shm
