// Guard against SIGBUS: memory whose pages others can take away.
//
// A touch of a guarded range whose pages are gone marks the range (its flag becomes true), lays
// anonymous memory over all of it, and the touching thread goes on; a part would not do, since a
// mapping of huge pages cannot be split. A SIGBUS anywhere else ends the process as if there were
// no handler. The handler is the process's, and takes no lock. Any thread may guard and unguard;
// whoever unguards a range has made sure that nobody touches it any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/status.h"

namespace wherry::engine {

// Below the mappings that the kernel lets a process have (vm.max_map_count, 65530), so that clients
// with many small regions are refused before the engine's own memory is.
inline constexpr uint32_t kMaxGuarded = 49152;

// Puts the handler in place; again is no error.
Status install_sigbus_handler();

// `broken` must outlive the guard. NO_RESOURCES when kMaxGuarded ranges are guarded.
Status guard_range(std::byte* base, uint64_t length, std::atomic<bool>* broken);

// `base` as it was guarded; one that is not is no error.
void unguard_range(std::byte* base);

}  // namespace wherry::engine
