// What a loop that spins does between two looks. Any thread; no system call.
#pragma once

namespace wherry::shm {

// Leaves the core's resources to others for a moment.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace wherry::shm
