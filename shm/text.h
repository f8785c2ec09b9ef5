// Small texts that stats, logs and tools share. Any thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wherry::shm {

// "2026-01-31T10:20:30.123Z" for nanoseconds since 1970.
std::string utc_text(uint64_t wall_ns);

// The text with everything but printable ASCII replaced by '?': safe on a terminal and in one line.
std::string printable(std::string_view text);

}  // namespace wherry::shm
