#include "engine/control/layout_view.h"

#include <algorithm>
#include <string>

namespace wherry::engine {
namespace {

std::string part_name(size_t index) { return "layout part " + std::to_string(index); }

Status check_part(size_t index, const PartSpec& part, const Geometry& geometry) {
  const uint64_t wanted = geometry.part_bytes();
  const bool fits = geometry.raw() ? part.length != 0 : part.length == wanted;
  if (fits) return {};
  return {Code::kInvalidArgument,
          part_name(index) + ": wanted a length of " +
              (geometry.raw() ? std::string("at least 1") : std::to_string(wanted)) + ", got " +
              std::to_string(part.length) + "; correct the part or the geometry"};
}

}  // namespace

Result<LayoutView> build_layout_view(const RegisterLayout& request, HandleTable& handles) {
  const Geometry& geometry = request.geometry;
  if (Status status = check_geometry(geometry); !status.ok()) return status;
  if (request.parts.size() != geometry.part_count()) {
    return Status(Code::kInvalidArgument,
                  "layout parts: wanted " + std::to_string(geometry.part_count()) +
                      " for this kind and geometry, got " + std::to_string(request.parts.size()) +
                      "; give one range for each");
  }
  LayoutView layout;
  layout.view = std::make_shared<View>();
  layout.view->kind = ViewKind::kLayout;
  layout.view->geometry = geometry;
  layout.view->parts.reserve(request.parts.size());
  layout.rights = kRightRead | kRightWrite;
  for (size_t i = 0; i < request.parts.size(); ++i) {
    const PartSpec& part = request.parts[i];
    if (Status status = check_part(i, part, geometry); !status.ok()) return status;
    const Holding* region = handles.find(part.region);
    if (region == nullptr || region->kind != Holding::Kind::kRegion) {
      return Status(Code::kStale, part_name(i) +
                                      ": wanted the handle of a region of this client, got " +
                                      std::to_string(part.region) + "; register the region first");
    }
    const Part& whole = region->view->parts.front();
    if (part.offset > whole.length || part.length > whole.length - part.offset) {
      return Status(Code::kOutOfRange, part_name(i) + ": wanted a range inside the region's " +
                                           std::to_string(whole.length) + " bytes, got offset " +
                                           std::to_string(part.offset) + " and length " +
                                           std::to_string(part.length) + "; correct the range");
    }
    layout.view->parts.push_back({whole.mapping, whole.offset + part.offset, part.length, 0});
    layout.rights &= region->rights;
    // Lists name the same few regions again and again.
    if (layout.regions.empty() || layout.regions.back() != part.region) {
      layout.regions.push_back(part.region);
    }
  }
  std::sort(layout.regions.begin(), layout.regions.end());
  layout.regions.erase(std::unique(layout.regions.begin(), layout.regions.end()),
                       layout.regions.end());
  for (const uint64_t region : layout.regions) {
    layout.view->mappings.push_back(handles.find(region)->mapping);
  }
  finish_view(*layout.view);
  if (layout.view->overlaps_itself && geometry.kind != LayoutKind::kDescriptorList) {
    return Status(Code::kOverlap,
                  "layout parts: wanted ranges of their own, got two that share bytes; "
                  "only a descriptor list may name bytes twice");
  }
  return layout;
}

}  // namespace wherry::engine
