#include "engine/tables.h"

#include <algorithm>

namespace wherry::engine {

void finish_view(View& view) {
  view.total_bytes = 0;
  view.overlaps_itself = false;
  view.extents.clear();
  struct Interval {
    uint64_t backing, begin, end;
  };
  std::vector<Interval> intervals;
  intervals.reserve(view.parts.size());
  for (Part& part : view.parts) {
    part.begin = view.total_bytes;
    view.total_bytes += part.length;
    intervals.push_back(
        {part.mapping->backing, part.backing_offset(), part.backing_offset() + part.length});
  }
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.backing != b.backing ? a.backing < b.backing : a.begin < b.begin;
  });
  for (const Interval& interval : intervals) {
    if (view.extents.empty() || view.extents.back().backing != interval.backing) {
      view.extents.push_back({interval.backing, interval.begin, interval.end});
      continue;
    }
    Extent& extent = view.extents.back();
    if (interval.begin < extent.end) view.overlaps_itself = true;
    extent.end = std::max(extent.end, interval.end);
  }
}

}  // namespace wherry::engine
