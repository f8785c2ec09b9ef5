// Plans: how blocks of one layout become runs into another, worked out once per pair of layouts.
//
// A plan is of fixed size and computed in place on a miss of the poller's cache; nothing is
// allocated. Poller thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tables.h"
#include "shm/status.h"

namespace wherry::engine {

// Addresses of one side: part by `part_axis`, offset = b*block + l*layer + o*outer.
struct SideStrides {
  enum class PartAxis : uint8_t { kNone, kLayer, kBlock };
  uint64_t block = 0;
  uint64_t layer = 0;
  uint64_t outer = 0;
  PartAxis part_axis = PartAxis::kNone;
};

struct Plan {
  enum class Unit : uint8_t { kRegion, kLayer, kBlock, kEntry };  // longest run both sides have
  enum class Overlap : uint8_t { kNone, kSameBlocks, kExact };    // how source may meet destination

  uint64_t source_id = 0;  // View ids; 0 = empty cache entry
  uint64_t destination_id = 0;
  Code code = Code::kOk;  // kIncompatibleLayout when the pair does not fit
  Unit unit = Unit::kRegion;
  Overlap overlap = Overlap::kNone;
  SideStrides source;
  SideStrides destination;
  uint64_t region_bytes = 0;  // R
  uint32_t outer_dim = 0;
  uint32_t num_layers = 0;

  // Bytes of one run for `layers` layers (not for kEntry, where the list says).
  uint64_t run_bytes(uint32_t layers) const {
    switch (unit) {
      case Unit::kRegion:
        return region_bytes;
      case Unit::kLayer:
        return region_bytes * outer_dim;
      case Unit::kBlock:
        return region_bytes * outer_dim * layers;
      case Unit::kEntry:
        break;
    }
    return 0;
  }

  // Whether runs of neighbouring blocks touch on both sides and so can be moved as one.
  bool merges(uint64_t run) const {
    const auto touches = [run](const SideStrides& side) {
      return side.part_axis != SideStrides::PartAxis::kBlock && side.block == run;
    };
    return unit != Unit::kEntry && touches(source) && touches(destination);
  }
};

// Whether the bounds of two views meet: false means they share no byte.
bool extents_meet(const View& a, const View& b);

// Works out the plan of a pair of layouts.
Plan make_plan(const View& source, const View& destination);

// Direct-mapped; view ids are never reused, so an entry is never stale.
class PlanCache {
 public:
  explicit PlanCache(uint32_t entries = 256) : entries_(entries) {}  // a power of two

  const Plan& get(const View& source, const View& destination) {
    const uint64_t hash =
        (source.id * 0x9e3779b97f4a7c15u) ^ (destination.id * 0xc2b2ae3d27d4eb4fu);
    Plan& entry = entries_[(hash >> 32) & (entries_.size() - 1)];
    if (entry.source_id == source.id && entry.destination_id == destination.id) {
      ++hits_;
    } else {
      ++misses_;
      entry = make_plan(source, destination);
    }
    return entry;
  }

  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }

 private:
  std::vector<Plan> entries_;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
};

}  // namespace wherry::engine
