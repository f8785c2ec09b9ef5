// A file whose lock stands for an owner: its OFD write lock says whether one lives, its text who it
// is.
//
// Control thread at start. The text is "<pid> <start time> <note>"; the start time (clock ticks
// since boot) tells a process from a later one of the same pid. The lock ends when the descriptor
// is closed, at the latest with the process. Tools ask with F_OFD_GETLK and take nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

struct LockOwner {
  pid_t pid = 0;
  uint64_t start_time = 0;
  std::string note;
};

// This process.
LockOwner this_process(std::string note);

// Start time of a live process or zombie; nullopt when there is none.
std::optional<uint64_t> start_time_of(pid_t pid);

// Opens the file, or makes it, and takes its lock. ALREADY_EXISTS names the path and the owner. A
// link or anything but a regular file is NOT_PERMITTED.
Result<shm::UniqueFd> take_lock_file(const std::string& path);

// Whether somebody holds the lock of the file at `path`; no file, no holder.
bool is_locked(const std::string& path);

// The owner that the text names; nullopt for an empty file or garbage.
std::optional<LockOwner> read_owner(int fd);

// "pid 17 (note)", or words for an owner that is not known.
std::string describe(const std::optional<LockOwner>& owner);

// Replaces the text; for no owner with nothing.
Status write_owner(int fd, const std::optional<LockOwner>& owner);

// Returns once that very process is gone or was never there (by pidfd; this process counts as
// gone); TIMED_OUT names it.
Status wait_until_gone(const LockOwner& owner, std::chrono::milliseconds timeout);

}  // namespace wherry::engine
