#include "clientlib/layout.h"

#include <utility>

namespace wherry {

LayoutSpec fully_contiguous(RegionHandle region, uint64_t offset, Geometry geometry) {
  geometry.kind = LayoutKind::kFullyContiguous;
  return {geometry, {{region, offset, geometry.part_bytes()}}};
}

LayoutSpec layer_separate(std::vector<LayoutPart> starts, Geometry geometry, bool block_first) {
  geometry.kind =
      block_first ? LayoutKind::kLayerSeparateBlockFirst : LayoutKind::kLayerSeparateBlockSecond;
  for (LayoutPart& part : starts) part.length = geometry.part_bytes();
  return {geometry, std::move(starts)};
}

LayoutSpec layer_separate(RegionHandle region, uint64_t offset, Geometry geometry,
                          bool block_first) {
  geometry.kind = LayoutKind::kLayerSeparateBlockFirst;  // both kinds have parts of one size
  std::vector<LayoutPart> starts;
  // A geometry with more layers is refused when it is registered.
  for (uint32_t layer = 0; layer < geometry.num_layers && layer < kMaxLayers; ++layer) {
    starts.push_back({region, offset + layer * geometry.part_bytes(), 0});
  }
  return layer_separate(std::move(starts), geometry, block_first);
}

LayoutSpec descriptor_list(std::vector<LayoutPart> starts, Geometry geometry) {
  geometry.kind = LayoutKind::kDescriptorList;
  geometry.num_blocks = static_cast<uint32_t>(starts.size());
  for (LayoutPart& part : starts) part.length = geometry.part_bytes();
  return {geometry, std::move(starts)};
}

LayoutSpec raw_list(std::vector<LayoutPart> parts) {
  Geometry geometry;
  geometry.kind = LayoutKind::kDescriptorList;
  geometry.dtype = DType::kUint8;
  geometry.num_blocks = static_cast<uint32_t>(parts.size());
  return {geometry, std::move(parts)};
}

}  // namespace wherry
