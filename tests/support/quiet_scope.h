// Counts what one thread does between begin() and end(): heap calls and system calls.
//
// Heap calls are counted by malloc and its like as the test program defines them; the first system
// call is caught by the kernel's syscall user dispatch, which turns it into a signal of that
// thread. For programs without a sanitizer. One scope at a time a thread.
#pragma once

#include <cstdint>
#include <string>

namespace wherry::test {

class QuietScope {
 public:
  // False where the kernel cannot catch system calls of a thread; `reason` says why.
  static bool supported(std::string* reason);

  void begin();
  void end();

  uint64_t heap_calls() const { return heap_calls_; }
  // System calls before the first was caught: 0 or 1, since the rest of the scope then runs
  // unwatched.
  uint64_t system_calls() const { return system_calls_; }
  long first_system_call() const { return first_system_call_; }

 private:
  uint64_t heap_calls_ = 0;
  uint64_t system_calls_ = 0;
  long first_system_call_ = -1;
};

}  // namespace wherry::test
