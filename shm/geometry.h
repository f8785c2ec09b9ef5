// Geometry of a KV-cache layout: from (block, layer, outer) to an offset, and what fits what.
//
//   R = page_size x inner_dim x dtype_bytes   bytes of one (block, layer, outer): always contiguous
//   fully contiguous             part 0:  b*nl*no*R + l*no*R + o*R
//   layer separate, block first  part l:  b*no*R + o*R
//   layer separate, block second part l:  o*nb*R + b*R
//   descriptor list              part b:  the block in fully contiguous order
// (nb blocks, nl layers, no = outer_dim). Source of the formulas: section 6 of the design.
// Plain values; any thread. All arithmetic on sizes is checked once, in check_geometry.
#pragma once

#include <cstdint>
#include <string_view>

#include "shm/status.h"

namespace wherry {

enum class LayoutKind : uint8_t {
  kFullyContiguous = 1,
  kLayerSeparateBlockFirst = 2,
  kLayerSeparateBlockSecond = 3,
  kDescriptorList = 4,
};

// Order of the elements inside R; a layout of an unknown order only fits another unknown one.
enum class InnerOrder : uint8_t { kUnknown = 0, kNhd = 1, kHnd = 2, kUniversal = 3 };

// LogicalLayoutHandle of the seed API: where the memory is.
enum class Tier : uint8_t { kG1 = 1, kG2 = 2, kG3 = 3, kG4 = 4 };

enum class DType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kFloat8E4M3 = 3,
  kFloat8E5M2 = 4,
  kFloat16 = 5,
  kBFloat16 = 6,
  kFloat32 = 7,
  kInt32 = 8,
  kFloat64 = 9,
  kInt64 = 10,
};

// Bytes of one element; 0 for a number that is no DType.
uint32_t dtype_bytes(DType dtype);

std::string_view layout_kind_name(
    LayoutKind kind);  // "fc", "ls_block_first", "ls_block_second", "list"
std::string_view inner_order_name(InnerOrder order);  // "unknown", "nhd", "hnd", "universal"
std::string_view tier_name(Tier tier);                // "G1" .. "G4"
std::string_view dtype_name(DType dtype);             // "bf16", "f32", ...

struct Geometry {
  LayoutKind kind = LayoutKind::kFullyContiguous;
  InnerOrder inner_order = InnerOrder::kUnknown;
  DType dtype = DType::kBFloat16;
  uint32_t num_blocks = 0;  // of a descriptor list: its entries
  uint32_t num_layers = 0;
  uint32_t outer_dim = 0;  // 1 or 2 (K and V)
  uint32_t page_size = 0;  // tokens in a block
  uint32_t inner_dim = 0;  // heads x head size
  // True for a plain list of byte ranges (a descriptor list without block geometry): layers, outer,
  // page and inner are 0, and it fits only other such lists, length by length.
  bool raw() const { return num_layers == 0; }

  // The following only for geometries that check_geometry accepted.
  uint64_t region_bytes() const {
    return uint64_t{page_size} * inner_dim * dtype_bytes(dtype);
  }  // R
  uint64_t layer_bytes() const { return region_bytes() * outer_dim; }
  uint64_t block_bytes() const { return layer_bytes() * num_layers; }
  // Parts the kind wants: 1, num_layers or num_blocks.
  uint32_t part_count() const;
  // Bytes each part must have; for a raw list every length will do and this is 0.
  uint64_t part_bytes() const;
};

inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxBlocks = 0x7fffffff;  // the poller keeps one bit of an id for itself

// INVALID_ARGUMENT naming the field when a value is zero, unknown or out of bounds, or when a size
// does not fit into 64 bits. (A zero block count is one too.)
Status check_geometry(const Geometry& geometry);

// The same answer as check_compatible without the words, for a poller.
inline bool compatible(const Geometry& a, const Geometry& b) {
  return a.num_layers == b.num_layers && a.outer_dim == b.outer_dim && a.page_size == b.page_size &&
         a.inner_dim == b.inner_dim &&
         (a.raw() || (a.dtype == b.dtype && a.inner_order == b.inner_order));
}

// Whether blocks of `source` can be copied to `destination`: layers, outer, page, inner, dtype and
// inner order are equal (raw lists: both raw). INCOMPATIBLE_LAYOUT names the first field and both
// values.
Status check_compatible(const Geometry& source, const Geometry& destination);

// Offset inside its part of (block, layer, outer); the part is 0, layer or block by kind.
inline uint64_t offset_in_part(const Geometry& g, uint64_t block, uint64_t layer, uint64_t outer) {
  const uint64_t r = g.region_bytes();
  switch (g.kind) {
    case LayoutKind::kFullyContiguous:
      return block * g.block_bytes() + layer * g.layer_bytes() + outer * r;
    case LayoutKind::kLayerSeparateBlockFirst:
      return block * g.layer_bytes() + outer * r;
    case LayoutKind::kLayerSeparateBlockSecond:
      return outer * g.num_blocks * r + block * r;
    case LayoutKind::kDescriptorList:
      break;
  }
  return layer * g.layer_bytes() + outer * r;
}

inline uint32_t part_of(const Geometry& g, uint32_t block, uint32_t layer) {
  if (g.kind == LayoutKind::kFullyContiguous) return 0;
  return g.kind == LayoutKind::kDescriptorList ? block : layer;
}

}  // namespace wherry
