// Whether the engine behind a stats file lives. Asks without taking anything; any thread.
//
// The engine holds a write lock on engine.lock beside its stats file, and the kernel drops it with
// the process: neither a pid nor a file's age is evidence.
#pragma once

#include <string>
#include <string_view>

#include "shm/stats_reader.h"

namespace wherry::tools {

enum class Life {
  kLive,
  kStale,    // the lock is held, but not for this file, or its owner has stopped beating
  kDead,     // nobody holds the lock, and the engine did not end by itself
  kStopped,  // it ended by itself
  kCopy,     // no lock beside the file: a copy
  kUnknown,  // the lock may not be asked
};
std::string_view life_name(Life life);  // "live", ...

struct LifeReport {
  Life life = Life::kUnknown;
  std::string why;  // for people, where the word alone does not say it
};

// A live engine beats several times a second.
inline constexpr uint64_t kStaleAfterNs = 10'000'000'000;

LifeReport engine_life(const shm::StatsReader& stats, const std::string& stats_path,
                       uint64_t now_wall_ns);

}  // namespace wherry::tools
