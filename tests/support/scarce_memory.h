// Memory that runs out where a test wants it to: operator new of this program fails.
//
// Link scarce_memory.cc into the test. Only allocations of the thread that holds a Scarcity fail,
// and only those through operator new.
#pragma once

#include <cstdint>

namespace wherry::test {

// While it lives, the allocations from number `first` (0 = the next one) to `first + count - 1`
// of all the time that any Scarcity of this thread lives fail. See scarcity_begin().
class Scarcity {
 public:
  Scarcity();
  ~Scarcity();
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
};

// Sets which allocations under a Scarcity are to fail, and counts them from 0 again.
void scarcity_begin(uint64_t first, uint64_t count);
// Whether any has failed since.
bool scarcity_hit();

}  // namespace wherry::test
