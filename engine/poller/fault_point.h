// Fault points: where a request's way can be cut, for the tests that kill the engine there.
//
// Nothing at all unless WHERRY_FAULT_POINTS is defined, as it is for the engine of tests/faults
// only, which defines at_fault_point(). Poller thread.
#pragma once

#include <cstdint>

namespace wherry::engine {

struct Request;

// In the order in which a request passes them: each comes right behind what it names.
enum class FaultPoint : uint32_t {
  kNowhere = 0,
  kQueued = 1,
  kMarked = 2,     // its word is in the in-flight table
  kPosted = 3,     // runs are handed to the transport
  kCopied = 4,     // a run has moved
  kDrained = 5,    // every run has; nothing is said yet
  kDelivered = 6,  // a notification is in its receiver's ring
  kPublished = 7,  // the completion is in the ring
  kCleared = 8,    // the word is gone
  kTold = 9,       // all who sleep have been woken
};

// `request` is null where several may have come so far.
void at_fault_point(FaultPoint point, Request* request);

}  // namespace wherry::engine

#ifdef WHERRY_FAULT_POINTS
#define WHERRY_FAULT_POINT(point, request) at_fault_point(FaultPoint::point, request)
#else
#define WHERRY_FAULT_POINT(point, request) static_cast<void>(0)
#endif
