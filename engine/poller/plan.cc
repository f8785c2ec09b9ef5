#include "engine/poller/plan.h"

namespace wherry::engine {
namespace {

using PartAxis = SideStrides::PartAxis;

SideStrides strides_of(const Geometry& g) {
  const uint64_t r = g.region_bytes();
  switch (g.kind) {
    case LayoutKind::kFullyContiguous:
      return {g.block_bytes(), g.layer_bytes(), r, PartAxis::kNone};
    case LayoutKind::kLayerSeparateBlockFirst:
      return {g.layer_bytes(), 0, r, PartAxis::kLayer};
    case LayoutKind::kLayerSeparateBlockSecond:
      return {r, 0, r * g.num_blocks, PartAxis::kLayer};
    case LayoutKind::kDescriptorList:
      break;
  }
  return {0, g.layer_bytes(), r, PartAxis::kBlock};
}

bool outers_touch(const SideStrides& side, const Geometry& g) {
  return g.outer_dim == 1 || side.outer == g.region_bytes();
}

bool layers_touch(const SideStrides& side, const Geometry& g) {
  return outers_touch(side, g) && side.part_axis != PartAxis::kLayer &&
         side.layer == g.layer_bytes();
}

bool same_memory(const View& a, const View& b) {
  if (&a == &b) return true;
  if (a.geometry.kind != b.geometry.kind || a.geometry.num_blocks != b.geometry.num_blocks ||
      a.parts.size() != b.parts.size()) {
    return false;
  }
  for (size_t i = 0; i < a.parts.size(); ++i) {
    if (a.parts[i].mapping->backing != b.parts[i].mapping->backing ||
        a.parts[i].backing_offset() != b.parts[i].backing_offset()) {
      return false;
    }
  }
  return true;
}

Plan::Overlap overlap_of(const View& source, const View& destination) {
  if (!extents_meet(source, destination)) return Plan::Overlap::kNone;
  // Equal block ids mean equal bytes only where blocks of one view do not share bytes themselves.
  if (same_memory(source, destination) && !source.overlaps_itself)
    return Plan::Overlap::kSameBlocks;
  return Plan::Overlap::kExact;
}

}  // namespace

bool extents_meet(const View& a, const View& b) {
  for (const Extent& x : a.extents) {
    for (const Extent& y : b.extents) {
      if (x.backing == y.backing && x.begin < y.end && y.begin < x.end) return true;
    }
  }
  return false;
}

Plan make_plan(const View& source, const View& destination) {
  Plan plan;
  plan.source_id = source.id;
  plan.destination_id = destination.id;
  if (source.kind != ViewKind::kLayout || destination.kind != ViewKind::kLayout ||
      !compatible(source.geometry, destination.geometry)) {
    plan.code = Code::kIncompatibleLayout;
    return plan;
  }
  const Geometry& g = source.geometry;
  plan.source = strides_of(source.geometry);
  plan.destination = strides_of(destination.geometry);
  plan.region_bytes = g.region_bytes();
  plan.outer_dim = g.outer_dim;
  plan.num_layers = g.num_layers;
  plan.overlap = overlap_of(source, destination);
  if (g.raw()) {
    plan.unit = Plan::Unit::kEntry;
  } else if (layers_touch(plan.source, source.geometry) &&
             layers_touch(plan.destination, destination.geometry)) {
    plan.unit = Plan::Unit::kBlock;
  } else if (outers_touch(plan.source, source.geometry) &&
             outers_touch(plan.destination, destination.geometry)) {
    plan.unit = Plan::Unit::kLayer;
  }
  return plan;
}

}  // namespace wherry::engine
