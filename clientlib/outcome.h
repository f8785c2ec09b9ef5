// How the outcomes of several records, or of several requests, become one. Internal; any thread.
#pragma once

#include "clientlib/types.h"

namespace wherry::detail {

// The worse of two outcomes; the first one of equally bad ones, which is the first cause. What
// leaves the state of the buffers least known is worst. NOT_STARTED does not take part: see
// Outcome.
inline int severity(Code code) {
  switch (code) {
    case Code::kOk:
      return 0;
    case Code::kCancelled:
      return 1;
    case Code::kTimedOut:
      return 3;
    case Code::kUnreachable:
    case Code::kRemoteAccess:
    case Code::kTransport:
    case Code::kStorage:
    case Code::kChecksum:
    case Code::kMemoryFault:
      return 4;
    case Code::kAborted:
      return 5;
    case Code::kInternal:
      return 6;
    case Code::kEngineGone:
      return 7;
    default:
      return 2;  // refused before anything moved
  }
}

// Collects codes. NOT_STARTED promises that repeating is safe, so it is the result only where every
// part says so; a part that was not started beside parts that were leaves the whole in an unknown
// state.
class Outcome {
 public:
  // True when this code is the worst so far: its native codes are the ones to keep.
  bool add(Code code) {
    ++parts_;
    if (code == Code::kNotStarted) {
      ++not_started_;
      return false;
    }
    if (severity(code) <= severity(worst_)) return false;
    worst_ = code;
    return true;
  }

  Code code() const {
    if (not_started_ == 0) return worst_;
    if (not_started_ == parts_) return Code::kNotStarted;
    return worst_ == Code::kOk ? Code::kEngineGone : worst_;
  }

 private:
  Code worst_ = Code::kOk;
  uint64_t parts_ = 0;
  uint64_t not_started_ = 0;
};

}  // namespace wherry::detail
