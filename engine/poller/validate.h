// Validation of a record that has been copied out: against private tables only, before anything is
// done.
//
// Everything the client wrote is hostile. What check_record refuses breaks the contract and ends
// the session; what validate refuses ends that request with a status. Poller thread only; no
// allocation.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/poller/plan.h"
#include "engine/poller/request.h"
#include "engine/tables.h"
#include "shm/slot.h"

namespace wherry::engine {

// Scratch for the checks of one request: a set of block ids, and intervals. Sized once.
class ValidationScratch {
 public:
  ValidationScratch();

  // Starts a set for up to `count` ids.
  void begin(uint32_t count);
  // False when the id is in the set already.
  bool insert(uint32_t id);
  bool contains(uint32_t id) const;

  struct Interval {
    uint64_t backing;
    uint64_t begin;
    uint64_t end;
  };
  // Bytes of the destination, for requests between layouts that may overlap in odd ways.
  static constexpr uint32_t kMaxIntervals = 8192;
  std::vector<Interval> intervals;  // capacity kMaxIntervals, never beyond

 private:
  struct Entry {
    uint32_t stamp;
    uint32_t id;
  };
  std::vector<Entry> entries_;
  uint32_t mask_ = 0;
  uint32_t stamp_ = 0;
};

// Null when the head is well formed, else what is wrong with it (a literal).
const char* check_record(const shm::SubmitHead& head, uint32_t max_slots);

// The outcome: OK fills in source, destination, plan, layers and, for ranges, the cursor.
struct Verdict {
  Code code = Code::kOk;
  uint32_t pair = kNone;  // the pair that is to blame, if one is
};

Verdict validate_transfer(Request& request, const shm::SubmitHead& head, const ClientTable& table,
                          ChunkPool& chunks, PlanCache& plans, ValidationScratch& scratch);
Verdict validate_range(Request& request, const shm::SubmitHead& head, const shm::RangeEntry& range,
                       const ClientTable& table);
// Finds whom to notify: `destination` becomes the target's view.
Verdict validate_notify(Request& request, const shm::SubmitHead& head, const ClientTable& table);

}  // namespace wherry::engine
