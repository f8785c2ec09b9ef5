// The error log of the stats file: each kind of trouble once, with how often and when.
//
// An area of fixed entries, keyed by (error, subject): a message whose numbers differ every time
// still takes one entry. All zero at first. One writer, the control thread (ErrorLogWriter, which
// looks only at the area it was given); anybody may read at any time, also after the writer's
// death. Subjects are names that clients choose: after kErrorSubjects of one error the others share
// an entry, so that no error keeps another out. A full log keeps what it has: record() then says
// false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shm/counter.h"
#include "shm/status.h"

namespace wherry::shm {

// What went wrong; numbers are kept in files and never change. Add at the end.
enum class ErrorId : uint32_t {
  kInternal = 1,         // a bug of ours
  kClientViolation = 2,  // a client broke the contract; its session was ended
  kAttachRefused = 3,
  kRequestRefused = 4,  // a control message that was answered with a failure
  kClientLost = 5,      // a client ended without saying so
  kRegistrationFailed = 6,
  kRegionBroken = 7,  // a client took pages away
  kStatsLost = 8,     // the stats file lost its pages; what is counted now is not seen
  kTransportFailed = 9,
  kClientNotReading = 10,  // a client does not reap
  kNoResources = 11,       // memory, descriptors or threads are used up
  kConfig = 12,            // something of the config could not be had
};
inline constexpr uint32_t kErrorIds = 12;
// "client_violation"; "error_<n>" for numbers of later releases
std::string error_name(uint32_t id);

inline constexpr uint32_t kErrorLogBytes = 64 * 1024;
inline constexpr uint32_t kErrorSubjectBytes = 63;
inline constexpr uint32_t kErrorTextBytes = 255;
inline constexpr uint32_t kErrorSubjects = 12;
inline constexpr std::string_view kOtherSubjects = "others";  // with the subject before the text

struct alignas(128) ErrorEntry {
  RowVersion version;
  std::atomic<uint32_t> error;  // ErrorId, 0 = free
  std::atomic<uint32_t> reserved32;
  Counter count;
  Counter first_wall_ns;
  Counter last_wall_ns;
  SharedText<64> subject;
  SharedText<256> text;  // of the last one
  Counter reserved[3];
};
static_assert(offsetof(ErrorEntry, subject) == 40 && offsetof(ErrorEntry, text) == 104);
static_assert(sizeof(ErrorEntry) == 384);

static_assert(kErrorIds * (kErrorSubjects + 1) <= kErrorLogBytes / sizeof(ErrorEntry));

class ErrorLogWriter {
 public:
  ErrorLogWriter() = default;
  ErrorLogWriter(std::byte* area, uint64_t bytes);

  // Longer subjects and texts are cut. False: the log is full and has no entry of this key.
  bool record(ErrorId error, std::string_view subject, std::string_view text, uint64_t wall_ns);

 private:
  ErrorEntry* entries_ = nullptr;
  uint32_t capacity_ = 0;
};

// A reader's copy of an entry.
struct ErrorRecord {
  uint32_t error = 0;
  uint64_t count = 0;
  uint64_t first_wall_ns = 0;
  uint64_t last_wall_ns = 0;
  std::string subject;
  std::string text;
  bool torn = false;  // the writer died in the middle of it
};

// The entries in the area, whatever its bytes are. The area is 128-byte aligned.
std::vector<ErrorRecord> read_error_log(const std::byte* area, uint64_t bytes);

// Writes the entries as text, one line each under the line `title`, in place of a file that is
// there. NO_RESOURCES names path and reason when that fails.
Status export_error_log(const std::vector<ErrorRecord>& records, std::string_view title,
                        const std::string& path);

}  // namespace wherry::shm
