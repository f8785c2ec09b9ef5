#include "engine/control/random.h"

#include <sys/random.h>

namespace wherry::engine {

uint64_t random_u64() {
  uint64_t number = 0;
  // Up to 256 bytes are never cut short once the kernel's pool is ready.
  while (getrandom(&number, sizeof(number), 0) != sizeof(number) || number == 0) {
  }
  return number;
}

}  // namespace wherry::engine
