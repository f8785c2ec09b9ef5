// What a client says to register a layout, and helpers that fill it in.
//
// Plain values; any thread. Nothing is checked here: Client::register_layout() does that. Regions
// and offsets say where the bytes lie; which offset a (block, layer, outer) has in them follows
// from the kind (shm/geometry.h has the formulas).
#pragma once

#include <cstdint>
#include <vector>

#include "clientlib/types.h"

namespace wherry {

struct LayoutPart {
  RegionHandle region;
  uint64_t offset = 0;  // in the region
  uint64_t length = 0;
};

struct LayoutSpec {
  Geometry geometry;
  std::vector<LayoutPart> parts;  // 1, num_layers or num_blocks of them, by kind
};

// All blocks in one piece: num_blocks * block_bytes() from `offset` on. `kind` of the geometry is
// set.
LayoutSpec fully_contiguous(RegionHandle region, uint64_t offset, Geometry geometry);

// One piece per layer, at `starts[layer]` (its length is filled in). `block_first` chooses between
// the two layer-separate kinds: [block][outer] or [outer][block].
LayoutSpec layer_separate(std::vector<LayoutPart> starts, Geometry geometry,
                          bool block_first = true);

// The same with all layers behind each other in one region, from `offset` on.
LayoutSpec layer_separate(RegionHandle region, uint64_t offset, Geometry geometry,
                          bool block_first = true);

// One piece per block, at `starts[block]` (its length is filled in), each in fully contiguous
// order.
LayoutSpec descriptor_list(std::vector<LayoutPart> starts, Geometry geometry);

// Byte ranges without a geometry of blocks; they fit other such lists, length by length.
LayoutSpec raw_list(std::vector<LayoutPart> parts);

}  // namespace wherry
