#include "shm/geometry.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace wherry {
namespace {

__extension__ typedef unsigned __int128 Exact;

constexpr LayoutKind kKinds[] = {LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
                                 LayoutKind::kLayerSeparateBlockSecond,
                                 LayoutKind::kDescriptorList};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Geometry geometry(LayoutKind kind, uint32_t blocks, uint32_t layers, uint32_t outer, uint32_t page,
                  uint32_t inner, DType dtype = DType::kBFloat16) {
  Geometry g;
  g.kind = kind;
  g.dtype = dtype;
  g.num_blocks = blocks;
  g.num_layers = layers;
  g.outer_dim = outer;
  g.page_size = page;
  g.inner_dim = inner;
  return g;
}

// Calls visit(part, block, layer, outer) in the order in which the regions lie in memory: the kinds
// as nested loops, without a formula.
void walk(const Geometry& g,
          const std::function<void(uint32_t, uint32_t, uint32_t, uint32_t)>& visit) {
  const uint32_t nb = g.num_blocks;
  const uint32_t nl = g.num_layers;
  const uint32_t no = g.outer_dim;
  switch (g.kind) {
    case LayoutKind::kFullyContiguous:
      for (uint32_t b = 0; b < nb; ++b)
        for (uint32_t l = 0; l < nl; ++l)
          for (uint32_t o = 0; o < no; ++o) visit(0, b, l, o);
      break;
    case LayoutKind::kLayerSeparateBlockFirst:
      for (uint32_t l = 0; l < nl; ++l)
        for (uint32_t b = 0; b < nb; ++b)
          for (uint32_t o = 0; o < no; ++o) visit(l, b, l, o);
      break;
    case LayoutKind::kLayerSeparateBlockSecond:
      for (uint32_t l = 0; l < nl; ++l)
        for (uint32_t o = 0; o < no; ++o)
          for (uint32_t b = 0; b < nb; ++b) visit(l, b, l, o);
      break;
    case LayoutKind::kDescriptorList:
      for (uint32_t b = 0; b < nb; ++b)
        for (uint32_t l = 0; l < nl; ++l)
          for (uint32_t o = 0; o < no; ++o) visit(b, b, l, o);
      break;
  }
}

TEST(Geometry, EveryRegionLiesWhereTheOrderOfItsKindPutsIt) {
  for (const LayoutKind kind : kKinds) {
    for (uint32_t blocks : {1u, 2u, 5u}) {
      for (uint32_t layers : {1u, 3u}) {
        for (uint32_t outer : {1u, 2u}) {
          const Geometry g = geometry(kind, blocks, layers, outer, 3, 5);
          SCOPED_TRACE(std::string(layout_kind_name(kind)) + " " + std::to_string(blocks) + "x" +
                       std::to_string(layers) + "x" + std::to_string(outer));
          ASSERT_TRUE(check_geometry(g).ok());
          // Each part fills up from 0 without a gap or an overlap, to exactly its size.
          std::vector<uint64_t> filled(g.part_count(), 0);
          walk(g, [&](uint32_t part, uint32_t b, uint32_t l, uint32_t o) {
            EXPECT_EQ(part_of(g, b, l), part);
            EXPECT_EQ(offset_in_part(g, b, l, o), filled.at(part)) << b << " " << l << " " << o;
            filled.at(part) += 3 * 5 * 2;
          });
          for (const uint64_t bytes : filled) EXPECT_EQ(bytes, g.part_bytes());
        }
      }
    }
  }
}

// The same by painting, with random dimensions: each byte of each part belongs to exactly one
// region.
TEST(Geometry, NoTwoRegionsShareAByteAndNoneReachesOutOfItsPart) {
  std::mt19937_64 random(7);
  const auto one_to = [&](uint64_t most) { return static_cast<uint32_t>(1 + random() % most); };
  for (int round = 0; round < 400; ++round) {
    const Geometry g = geometry(kKinds[random() % 4], one_to(9), one_to(6), one_to(2), one_to(4),
                                one_to(5), static_cast<DType>(one_to(10)));
    ASSERT_TRUE(check_geometry(g).ok());
    std::vector<std::vector<uint8_t>> painted(g.part_count(), std::vector<uint8_t>(g.part_bytes()));
    for (uint32_t b = 0; b < g.num_blocks; ++b) {
      for (uint32_t l = 0; l < g.num_layers; ++l) {
        for (uint32_t o = 0; o < g.outer_dim; ++o) {
          const uint64_t begin = offset_in_part(g, b, l, o);
          for (uint64_t i = 0; i < g.region_bytes(); ++i) {
            ASSERT_EQ(++painted.at(part_of(g, b, l)).at(begin + i), 1) << round;
          }
        }
      }
    }
    for (const auto& part : painted) {
      for (const uint8_t count : part) ASSERT_EQ(count, 1) << round;
    }
  }
}

TEST(Geometry, OffsetsBeyond32BitsAreExact) {
  for (const LayoutKind kind : kKinds) {
    const Geometry g = geometry(kind, 1'000'000, 80, 2, 64, 8192, DType::kFloat32);
    ASSERT_TRUE(check_geometry(g).ok());
    const uint64_t r = uint64_t{64} * 8192 * 4;  // 2 MiB
    EXPECT_EQ(g.region_bytes(), r);
    const uint64_t b = 999'999;
    const uint64_t l = 79;
    const uint64_t at = offset_in_part(g, b, l, 1);
    switch (kind) {
      case LayoutKind::kFullyContiguous:
        EXPECT_EQ(at, r * (b * 160 + l * 2 + 1));
        break;
      case LayoutKind::kLayerSeparateBlockFirst:
        EXPECT_EQ(at, r * (b * 2 + 1));
        break;
      case LayoutKind::kLayerSeparateBlockSecond:
        EXPECT_EQ(at, r * (1'000'000 + b));
        break;
      case LayoutKind::kDescriptorList:
        EXPECT_EQ(at, r * (l * 2 + 1));
        break;
    }
    EXPECT_LE(at + r, g.part_bytes());
  }
}

TEST(Geometry, ProductsAreAllowedUpToTheLastBitOf64) {
  // (2^32 - 1)^2 = 2^64 - 2^33 + 1 bytes.
  const Geometry most =
      geometry(LayoutKind::kFullyContiguous, 1, 1, 1, UINT32_MAX, UINT32_MAX, DType::kUint8);
  EXPECT_TRUE(check_geometry(most).ok());
  EXPECT_EQ(most.part_bytes(), 18446744065119617025u);
  Geometry more = most;
  more.num_blocks = 2;
  const Status refused = check_geometry(more);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(refused.message(), "2^64")) << refused.message();
  // 2^32 bytes, and 2^64 exactly.
  EXPECT_EQ(geometry(LayoutKind::kFullyContiguous, 1, 1, 1, 1u << 16, 1u << 15).part_bytes(),
            uint64_t{1} << 32);
  EXPECT_TRUE(
      check_geometry(geometry(LayoutKind::kFullyContiguous, 1, 1, 1, 1u << 31, 1u << 31)).ok());
  EXPECT_FALSE(check_geometry(geometry(LayoutKind::kFullyContiguous, 1, 1, 1, 1u << 31, 1u << 31,
                                       DType::kFloat32))
                   .ok());
  EXPECT_FALSE(
      check_geometry(geometry(LayoutKind::kFullyContiguous, 2, 1, 1, 1u << 31, 1u << 31)).ok());
  // The product wraps around to something small: 2^31 * 2^31 * 8 = 2^65.
  EXPECT_FALSE(check_geometry(geometry(LayoutKind::kDescriptorList, 1, 1, 1, 1u << 31, 1u << 31,
                                       DType::kInt64))
                   .ok());
}

TEST(Geometry, RandomLargeDimensionsAreJudgedAsByExactArithmetic) {
  std::mt19937_64 random(99);
  const auto size = [&](uint64_t most) {
    // Log-uniform, so that products of all magnitudes come up.
    const uint64_t top = uint64_t{1} << random() % 32;
    return static_cast<uint32_t>(std::min(1 + random() % top, most));
  };
  uint64_t refused = 0;
  for (int round = 0; round < 100'000; ++round) {
    const Geometry g =
        geometry(kKinds[random() % 4], size(kMaxBlocks), size(kMaxLayers), 1 + random() % 2,
                 size(UINT32_MAX), size(UINT32_MAX), static_cast<DType>(1 + random() % 10));
    // At most 32 + 32 + 3 + 1 + 12 bits before the blocks: no overflow in 128.
    const auto exact = static_cast<Exact>(g.page_size) * g.inner_dim * dtype_bytes(g.dtype) *
                       g.outer_dim * g.num_layers * g.num_blocks;
    const bool fits = exact <= UINT64_MAX;
    ASSERT_EQ(check_geometry(g).ok(), fits) << round;
    refused += fits ? 0 : 1;
    if (!fits) continue;
    ASSERT_TRUE(static_cast<Exact>(g.part_bytes()) * g.part_count() == exact) << round;
    const uint64_t last = offset_in_part(g, g.num_blocks - 1, g.num_layers - 1, g.outer_dim - 1);
    ASSERT_TRUE(static_cast<Exact>(last) + g.region_bytes() == g.part_bytes()) << round;
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 99'000u);
}

TEST(GeometryCheck, NamesTheFieldAndItsValue) {
  struct Case {
    const char* field;
    const char* got;
    std::function<void(Geometry&)> change;
  };
  const Case cases[] = {
      {"kind", "got 0", [](Geometry& g) { g.kind = static_cast<LayoutKind>(0); }},
      {"kind", "got 5", [](Geometry& g) { g.kind = static_cast<LayoutKind>(5); }},
      {"inner_order", "got 4", [](Geometry& g) { g.inner_order = static_cast<InnerOrder>(4); }},
      {"inner_order", "got universal", [](Geometry& g) { g.inner_order = InnerOrder::kUniversal; }},
      {"dtype", "got 0", [](Geometry& g) { g.dtype = static_cast<DType>(0); }},
      {"dtype", "got 11", [](Geometry& g) { g.dtype = static_cast<DType>(11); }},
      {"num_blocks", "got 0", [](Geometry& g) { g.num_blocks = 0; }},
      {"num_blocks", "got 2147483648", [](Geometry& g) { g.num_blocks = 0x80000000; }},
      {"num_layers", "got 0", [](Geometry& g) { g.num_layers = 0; }},
      {"num_layers", "got 4097", [](Geometry& g) { g.num_layers = 4097; }},
      {"outer_dim", "got 0", [](Geometry& g) { g.outer_dim = 0; }},
      {"outer_dim", "got 3", [](Geometry& g) { g.outer_dim = 3; }},
      {"page_size", "got 0", [](Geometry& g) { g.page_size = 0; }},
      {"inner_dim", "got 0", [](Geometry& g) { g.inner_dim = 0; }},
  };
  for (const Case& c : cases) {
    Geometry g = geometry(LayoutKind::kLayerSeparateBlockFirst, 4, 4, 2, 16, 64);
    ASSERT_TRUE(check_geometry(g).ok());
    c.change(g);
    const Status status = check_geometry(g);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.field;
    EXPECT_TRUE(contains(status.message(), c.field)) << status.message();
    EXPECT_TRUE(contains(status.message(), c.got)) << status.message();
  }
}

TEST(GeometryCheck, UniversalOrderNeedsHeadsOutsideTheLayers) {
  for (const LayoutKind kind : kKinds) {
    Geometry g = geometry(kind, 4, 4, 2, 16, 64);
    g.inner_order = InnerOrder::kUniversal;
    const bool contiguous =
        kind == LayoutKind::kFullyContiguous || kind == LayoutKind::kDescriptorList;
    EXPECT_EQ(check_geometry(g).ok(), contiguous) << layout_kind_name(kind);
  }
}

TEST(GeometryCheck, AListOfPlainRangesHasNoDimensions) {
  Geometry raw = geometry(LayoutKind::kDescriptorList, 100, 0, 0, 0, 0);
  EXPECT_TRUE(check_geometry(raw).ok());
  EXPECT_TRUE(raw.raw());
  EXPECT_EQ(raw.part_count(), 100u);
  EXPECT_EQ(raw.part_bytes(), 0u);
  for (uint32_t Geometry::*field :
       {&Geometry::outer_dim, &Geometry::page_size, &Geometry::inner_dim}) {
    Geometry wrong = raw;
    wrong.*field = 1;
    EXPECT_EQ(check_geometry(wrong).code(), Code::kInvalidArgument);
  }
  raw.kind = LayoutKind::kFullyContiguous;
  EXPECT_EQ(check_geometry(raw).code(), Code::kInvalidArgument);
}

TEST(GeometryPair, TheFirstFieldThatDiffersIsNamedWithBothValues) {
  struct Case {
    const char* field;
    const char* source;
    const char* destination;
    std::function<void(Geometry&)> change;
  };
  const Case cases[] = {
      {"num_layers", "4", "5", [](Geometry& g) { g.num_layers = 5; }},
      {"outer_dim", "2", "1", [](Geometry& g) { g.outer_dim = 1; }},
      {"page_size", "16", "32", [](Geometry& g) { g.page_size = 32; }},
      {"inner_dim", "64", "48", [](Geometry& g) { g.inner_dim = 48; }},
      {"dtype", "bf16", "f16", [](Geometry& g) { g.dtype = DType::kFloat16; }},
      {"inner order", "unknown", "hnd", [](Geometry& g) { g.inner_order = InnerOrder::kHnd; }},
      {"num_layers", "4", "9",
       [](Geometry& g) {
         g.num_layers = 9;
         g.dtype = DType::kInt8;
       }},
  };
  const Geometry source = geometry(LayoutKind::kFullyContiguous, 8, 4, 2, 16, 64);
  for (const Case& c : cases) {
    Geometry destination = source;
    c.change(destination);
    const std::string there = check_compatible(source, destination).message();
    EXPECT_EQ(check_compatible(source, destination).code(), Code::kIncompatibleLayout);
    EXPECT_TRUE(contains(there, c.field)) << there;
    EXPECT_TRUE(contains(there, std::string("source has ") + c.source)) << there;
    EXPECT_TRUE(contains(there, std::string("destination has ") + c.destination)) << there;
    const std::string back = check_compatible(destination, source).message();
    EXPECT_TRUE(contains(back, std::string("source has ") + c.destination)) << back;
  }
}

TEST(GeometryPair, KindAndNumberOfBlocksMayDiffer) {
  for (const LayoutKind from : kKinds) {
    for (const LayoutKind to : kKinds) {
      EXPECT_TRUE(
          check_compatible(geometry(from, 8, 4, 2, 16, 64), geometry(to, 3, 4, 2, 16, 64)).ok());
    }
  }
}

TEST(GeometryPair, PlainRangesOnlyFitPlainRanges) {
  const Geometry raw = geometry(LayoutKind::kDescriptorList, 100, 0, 0, 0, 0);
  Geometry other = geometry(LayoutKind::kDescriptorList, 7, 0, 0, 0, 0, DType::kInt8);
  other.inner_order = InnerOrder::kHnd;
  EXPECT_TRUE(check_compatible(raw, other).ok());
  const Geometry blocks = geometry(LayoutKind::kDescriptorList, 7, 1, 1, 1, 1);
  const Status status = check_compatible(raw, blocks);
  EXPECT_EQ(status.code(), Code::kIncompatibleLayout);
  EXPECT_TRUE(contains(status.message(), "block geometry: source has none, destination has some"))
      << status.message();
}

TEST(GeometryPair, TheQuickAnswerForThePollerIsTheSame) {
  std::mt19937_64 random(3);
  uint64_t fits = 0;
  const auto any = [&] {
    Geometry g = geometry(kKinds[random() % 4], 4, 1 + random() % 2, 1 + random() % 2,
                          1 + random() % 2, 1 + random() % 2, static_cast<DType>(1 + random() % 2));
    g.inner_order = static_cast<InnerOrder>(random() % 2);
    if (random() % 4 == 0) {
      g.num_layers = g.outer_dim = g.page_size = g.inner_dim = 0;
      g.kind = LayoutKind::kDescriptorList;
    }
    return g;
  };
  for (int round = 0; round < 20'000; ++round) {
    const Geometry a = any();
    const Geometry b = any();
    ASSERT_EQ(compatible(a, b), check_compatible(a, b).ok());
    fits += compatible(a, b) ? 1 : 0;
  }
  EXPECT_GT(fits, 500u);
}

// Names stand in messages, stats and the Python module; numbers travel over the control socket.
TEST(GeometryNames, AndNumbersNeverChange) {
  const char* const kinds[] = {"invalid",         "fc",   "ls_block_first",
                               "ls_block_second", "list", "invalid"};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(layout_kind_name(static_cast<LayoutKind>(i)), kinds[i]);
  const char* const orders[] = {"unknown", "nhd", "hnd", "universal", "invalid"};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(inner_order_name(static_cast<InnerOrder>(i)), orders[i]);
  const char* const tiers[] = {"invalid", "G1", "G2", "G3", "G4", "invalid"};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(tier_name(static_cast<Tier>(i)), tiers[i]);
  const char* const dtypes[] = {"invalid", "u8",  "i8",  "f8_e4m3", "f8_e5m2", "f16",
                                "bf16",    "f32", "i32", "f64",     "i64",     "invalid"};
  const uint32_t bytes[] = {0, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 0};
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(dtype_name(static_cast<DType>(i)), dtypes[i]);
    EXPECT_EQ(dtype_bytes(static_cast<DType>(i)), bytes[i]) << i;
  }
}

}  // namespace
}  // namespace wherry
