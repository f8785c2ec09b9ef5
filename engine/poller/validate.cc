#include "engine/poller/validate.h"

#include <algorithm>

#include "engine/poller/runs.h"
#include "shm/layout.h"

namespace wherry::engine {
namespace {

// Reads pair after pair of the private copy.
class PairWalk {
 public:
  PairWalk(const Request& request, ChunkPool& chunks)
      : request_(request), chunks_(chunks), chunk_(request.first_chunk) {}

  bool next(shm::BlockPair* pair) {
    if (index_ == request_.pair_count) return false;
    if (index_ == 0) {
      *pair = request_.first_pair;
    } else {
      const auto* pairs = reinterpret_cast<const shm::BlockPair*>(chunks_[chunk_].payload.data());
      const uint32_t in_chunk = (index_ - 1) % shm::kEntriesPerSlot;
      *pair = pairs[in_chunk];
      if (in_chunk == shm::kEntriesPerSlot - 1) chunk_ = chunks_[chunk_].next;
    }
    ++index_;
    return true;
  }

  uint32_t last_index() const { return index_ - 1; }

 private:
  const Request& request_;
  ChunkPool& chunks_;
  uint32_t chunk_;
  uint32_t index_ = 0;
};

Code find_view(const ClientTable& table, uint64_t handle, uint8_t right, const View** view) {
  const TableEntry* entry = table.find(handle);
  if (entry == nullptr) return Code::kStale;
  if ((entry->rights & right) != right) return Code::kNotPermitted;
  *view = entry->view;
  return Code::kOk;
}

Verdict check_ids(const Request& request, ChunkPool& chunks) {
  const uint32_t source_blocks = request.source->geometry.num_blocks;
  const uint32_t destination_blocks = request.destination->geometry.num_blocks;
  const bool entries = request.plan.unit == Plan::Unit::kEntry;
  PairWalk walk(request, chunks);
  for (shm::BlockPair pair{}; walk.next(&pair);) {
    if (pair.source >= source_blocks || pair.destination >= destination_blocks) {
      return {Code::kOutOfRange, walk.last_index()};
    }
    if (entries && request.source->parts[pair.source].length !=
                       request.destination->parts[pair.destination].length) {
      return {Code::kIncompatibleLayout, walk.last_index()};
    }
  }
  return {};
}

bool destinations_ascend(const Request& request, ChunkPool& chunks) {
  PairWalk walk(request, chunks);
  int64_t previous = -1;
  for (shm::BlockPair pair{}; walk.next(&pair);) {
    if (int64_t{pair.destination} <= previous) return false;
    previous = pair.destination;
  }
  return true;
}

// No destination twice; leaves the destinations in the scratch set when `keep`.
Verdict check_duplicates(const Request& request, ChunkPool& chunks, ValidationScratch& scratch,
                         bool keep) {
  if (!keep && destinations_ascend(request, chunks)) return {};
  scratch.begin(request.pair_count);
  PairWalk walk(request, chunks);
  for (shm::BlockPair pair{}; walk.next(&pair);) {
    if (!scratch.insert(pair.destination)) return {Code::kOverlap, walk.last_index()};
  }
  return {};
}

Verdict check_same_blocks(const Request& request, ChunkPool& chunks,
                          const ValidationScratch& scratch) {
  PairWalk walk(request, chunks);
  for (shm::BlockPair pair{}; walk.next(&pair);) {
    if (scratch.contains(pair.source)) return {Code::kOverlap, walk.last_index()};
  }
  return {};
}

// Calls `visit(interval)` for each contiguous piece of a block on one side; stops when it says
// false.
template <typename Visit>
bool for_each_piece(const View& view, const SideStrides& side, const Request& request,
                    uint32_t block, const Visit& visit) {
  const uint64_t r = request.plan.region_bytes;
  const uint32_t outers = request.plan.outer_dim;
  const auto piece = [&](uint32_t part, uint64_t offset, uint64_t bytes) {
    const Part& where = view.parts[part];
    const uint64_t begin = where.backing_offset() + offset;
    return visit(ValidationScratch::Interval{where.mapping->backing, begin, begin + bytes});
  };
  if (view.geometry.raw()) return piece(block, 0, view.parts[block].length);
  const uint64_t layer_bytes = r * outers;
  if (side.part_axis != SideStrides::PartAxis::kLayer) {
    const uint32_t part = side.part_axis == SideStrides::PartAxis::kBlock ? block : 0;
    return piece(part, block * side.block + request.layer_first * side.layer,
                 layer_bytes * (request.layer_end - request.layer_first));
  }
  const bool whole_layer = outers == 1 || side.outer == r;
  for (uint32_t layer = request.layer_first; layer < request.layer_end; ++layer) {
    if (whole_layer) {
      if (!piece(layer, block * side.block, layer_bytes)) return false;
      continue;
    }
    for (uint32_t outer = 0; outer < outers; ++outer) {
      if (!piece(layer, block * side.block + outer * side.outer, r)) return false;
    }
  }
  return true;
}

// Layouts that share memory but not block for block: compare bytes. Bounded, so that no client can
// hold the poller for long; beyond the bound the request has to be split.
Verdict check_exact_overlap(const Request& request, ChunkPool& chunks, ValidationScratch& scratch) {
  auto& intervals = scratch.intervals;
  intervals.clear();
  PairWalk destinations(request, chunks);
  for (shm::BlockPair pair{}; destinations.next(&pair);) {
    const bool fits =
        for_each_piece(*request.destination, request.plan.destination, request, pair.destination,
                       [&](const ValidationScratch::Interval& interval) {
                         if (intervals.size() == ValidationScratch::kMaxIntervals) return false;
                         intervals.push_back(interval);
                         return true;
                       });
    if (!fits) return {Code::kUnsupported, destinations.last_index()};
  }
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) {
    return a.backing != b.backing ? a.backing < b.backing : a.begin < b.begin;
  });
  uint32_t looked_at = 0;
  PairWalk sources(request, chunks);
  for (shm::BlockPair pair{}; sources.next(&pair);) {
    Code code = Code::kOk;
    for_each_piece(*request.source, request.plan.source, request, pair.source,
                   [&](const ValidationScratch::Interval& piece) {
                     if (++looked_at > ValidationScratch::kMaxIntervals) code = Code::kUnsupported;
                     // Destination pieces do not overlap each other, so the last one that begins
                     // before this piece's end is the only one that can meet it.
                     auto after = std::lower_bound(
                         intervals.begin(), intervals.end(), piece,
                         [](const auto& a, const auto& b) {
                           return a.backing != b.backing ? a.backing < b.backing : a.begin < b.end;
                         });
                     if (after != intervals.begin()) {
                       const auto& before = *(after - 1);
                       if (before.backing == piece.backing && before.end > piece.begin)
                         code = Code::kOverlap;
                     }
                     return code == Code::kOk;
                   });
    if (code != Code::kOk) return {code, sources.last_index()};
  }
  return {};
}

Verdict check_layers(Request& request, const shm::SubmitHead& head) {
  const Geometry& g = request.source->geometry;
  const bool lists = request.plan.source.part_axis == SideStrides::PartAxis::kBlock &&
                     request.plan.destination.part_axis == SideStrides::PartAxis::kBlock;
  if (head.layer_first == 0 && head.layer_end == 0) {
    request.layer_first = 0;
    request.layer_end = g.num_layers;
    return {};
  }
  if (lists) return {Code::kUnsupported, kNone};
  if (head.layer_first >= head.layer_end || head.layer_end > g.num_layers)
    return {Code::kOutOfRange, kNone};
  request.layer_first = head.layer_first;
  request.layer_end = head.layer_end;
  return {};
}

}  // namespace

ValidationScratch::ValidationScratch() {
  constexpr uint32_t kMaxPairs = (shm::kMaxRingSlots / 4) * shm::kEntriesPerSlot + 1;
  uint32_t size = 1;
  while (size < 2 * kMaxPairs) size *= 2;
  entries_.resize(size);
  intervals.reserve(kMaxIntervals);
}

void ValidationScratch::begin(uint32_t count) {
  uint32_t size = 16;
  while (size < 2 * count) size *= 2;
  mask_ = size - 1;
  // A new stamp empties the set; only when the stamps are used up is it really cleared.
  if (++stamp_ == 0) {
    std::fill(entries_.begin(), entries_.end(), Entry{});
    stamp_ = 1;
  }
}

bool ValidationScratch::insert(uint32_t id) {
  uint32_t at = (id * 0x9e3779b1u >> 7) & mask_;
  while (entries_[at].stamp == stamp_) {
    if (entries_[at].id == id) return false;
    at = (at + 1) & mask_;
  }
  entries_[at] = {stamp_, id};
  return true;
}

bool ValidationScratch::contains(uint32_t id) const {
  uint32_t at = (id * 0x9e3779b1u >> 7) & mask_;
  while (entries_[at].stamp == stamp_) {
    if (entries_[at].id == id) return true;
    at = (at + 1) & mask_;
  }
  return false;
}

const char* check_record(const shm::SubmitHead& head, uint32_t max_slots) {
  if (head.slot_count == 0 || head.slot_count > max_slots) return "record: slot count out of range";
  if (head.notification_bytes > shm::kMaxNotificationBytes) return "record: notification too long";
  switch (static_cast<shm::Op>(head.op)) {
    case shm::Op::kTransfer:
      if (head.pair_count > max_slots * shm::kEntriesPerSlot ||
          head.slot_count != shm::record_slots(head.pair_count, head.notification_bytes)) {
        return "record: slot count does not match its pairs";
      }
      break;
    case shm::Op::kRange:
      if (head.pair_count != 1 ||
          head.slot_count != 1 + shm::record_slots(1, head.notification_bytes)) {
        return "record: slot count does not match its range";
      }
      break;
    case shm::Op::kNotify:
      if (head.pair_count != 0 ||
          head.slot_count != shm::record_slots(0, head.notification_bytes)) {
        return "record: slot count does not match its notification";
      }
      break;
    default:
      return "record: unknown op";
  }
  if (head.reserved != 0) return "record: reserved field is not zero";
  if ((head.flags & ~shm::kKnownSubmitFlags) != 0) return "record: unknown flag";
  if (head.priority > 1) return "record: unknown priority";
  return nullptr;
}

Verdict validate_transfer(Request& request, const shm::SubmitHead& head, const ClientTable& table,
                          ChunkPool& chunks, PlanCache& plans, ValidationScratch& scratch) {
  if (Code code = find_view(table, head.source, kRightRead, &request.source); code != Code::kOk)
    return {code};
  if (Code code = find_view(table, head.destination, kRightWrite, &request.destination);
      code != Code::kOk) {
    return {code};
  }
  if (request.source->kind != ViewKind::kLayout || request.destination->kind != ViewKind::kLayout) {
    return {Code::kInvalidArgument};
  }
  request.plan = plans.get(*request.source, *request.destination);
  if (request.plan.code != Code::kOk) return {request.plan.code};
  if (Verdict verdict = check_layers(request, head); verdict.code != Code::kOk) return verdict;
  if (request.pair_count == 0) return {};
  if (request.destination->overlaps_itself) return {Code::kOverlap};
  if (Verdict verdict = check_ids(request, chunks); verdict.code != Code::kOk) return verdict;
  const bool same = request.plan.overlap == Plan::Overlap::kSameBlocks;
  if (Verdict verdict = check_duplicates(request, chunks, scratch, same); verdict.code != Code::kOk)
    return verdict;
  if (same) return check_same_blocks(request, chunks, scratch);
  if (request.plan.overlap == Plan::Overlap::kExact)
    return check_exact_overlap(request, chunks, scratch);
  return {};
}

namespace {

// Which part byte `offset` of the view lies in, and where in it.
void locate(const View& view, uint64_t offset, uint32_t* part, uint64_t* at) {
  const auto after =
      std::upper_bound(view.parts.begin(), view.parts.end(), offset,
                       [](uint64_t value, const Part& p) { return value < p.begin; });
  *part = static_cast<uint32_t>(after - view.parts.begin()) - 1;
  *at = offset - view.parts[*part].begin;
}

// Parts of a view that a byte range touches: first, and one past the last.
struct PartSpan {
  uint32_t first;
  uint32_t end;
};

PartSpan parts_of(const View& view, uint64_t offset, uint64_t length) {
  uint64_t at = 0;
  PartSpan span{};
  locate(view, offset, &span.first, &at);
  locate(view, offset + length - 1, &span.end, &at);
  ++span.end;
  return span;
}

// Whether two byte ranges of two views share bytes. UNSUPPORTED when finding out would hold the
// poller for long (ranges over very many parts of lists that may overlap): the range has to be
// split.
Code check_ranges_apart(const View& a, uint64_t a_offset, const View& b, uint64_t b_offset,
                        uint64_t length) {
  if (!extents_meet(a, b)) return Code::kOk;
  const PartSpan a_span = parts_of(a, a_offset, length);
  const PartSpan b_span = parts_of(b, b_offset, length);
  if (uint64_t{a_span.end - a_span.first} * (b_span.end - b_span.first) >
      8 * ValidationScratch::kMaxIntervals) {
    return Code::kUnsupported;
  }
  const auto piece = [length](const Part& part, uint64_t offset) {
    const uint64_t begin = std::max(offset, part.begin);
    const uint64_t end = std::min(offset + length, part.begin + part.length);
    const uint64_t at = part.backing_offset() + (begin - part.begin);
    return ValidationScratch::Interval{part.mapping->backing, at, at + (end - begin)};
  };
  for (uint32_t i = a_span.first; i < a_span.end; ++i) {
    const auto x = piece(a.parts[i], a_offset);
    for (uint32_t j = b_span.first; j < b_span.end; ++j) {
      const auto y = piece(b.parts[j], b_offset);
      if (x.backing == y.backing && x.begin < y.end && y.begin < x.end) return Code::kOverlap;
    }
  }
  return Code::kOk;
}

bool fits(const View& view, uint64_t offset, uint64_t length) {
  return offset <= view.total_bytes && length <= view.total_bytes - offset;
}

}  // namespace

Verdict validate_range(Request& request, const shm::SubmitHead& head, const shm::RangeEntry& range,
                       const ClientTable& table) {
  if (Code code = find_view(table, head.source, kRightRead, &request.source); code != Code::kOk)
    return {code, 0};
  if (Code code = find_view(table, head.destination, kRightWrite, &request.destination);
      code != Code::kOk) {
    return {code, 0};
  }
  if (request.source->parts.empty() || request.destination->parts.empty() || range.length == 0) {
    return {Code::kInvalidArgument, 0};
  }
  if (head.layer_first != 0 || head.layer_end != 0) return {Code::kUnsupported, 0};
  if (!fits(*request.source, range.source_offset, range.length) ||
      !fits(*request.destination, range.destination_offset, range.length)) {
    return {Code::kOutOfRange, 0};
  }
  if (request.destination->overlaps_itself) return {Code::kOverlap, 0};
  if (Code code = check_ranges_apart(*request.source, range.source_offset, *request.destination,
                                     range.destination_offset, range.length);
      code != Code::kOk) {
    return {code, 0};
  }
  RunCursor& c = request.cursor;
  c = RunCursor{};
  c.remaining = range.length;
  locate(*request.source, range.source_offset, &c.source_part, &c.source_at);
  locate(*request.destination, range.destination_offset, &c.destination_part, &c.destination_at);
  return {};
}

Verdict validate_notify(Request& request, const shm::SubmitHead& head, const ClientTable& table) {
  const TableEntry* entry = table.find(head.destination);
  if (entry == nullptr) return {Code::kStale};
  if (entry->view->kind != ViewKind::kClient || head.source != 0 || head.notification_bytes == 0) {
    return {Code::kInvalidArgument};
  }
  request.destination = entry->view;
  return {};
}

}  // namespace wherry::engine
