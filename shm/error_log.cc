#include "shm/error_log.h"

#include <array>
#include <cerrno>
#include <fstream>

#include "shm/text.h"

namespace wherry::shm {

std::string error_name(uint32_t id) {
  constexpr std::array<std::string_view, kErrorIds + 1> kNames = {
      "",
      "internal",
      "client_violation",
      "attach_refused",
      "request_refused",
      "client_lost",
      "registration_failed",
      "region_broken",
      "stats_lost",
      "transport_failed",
      "client_not_reading",
      "no_resources",
      "config",
  };
  if (id > 0 && id < kNames.size()) return std::string(kNames[id]);
  return "error_" + std::to_string(id);
}

ErrorLogWriter::ErrorLogWriter(std::byte* area, uint64_t bytes)
    : entries_(reinterpret_cast<ErrorEntry*>(area)),
      capacity_(static_cast<uint32_t>(bytes / sizeof(ErrorEntry))) {}

bool ErrorLogWriter::record(ErrorId error, std::string_view subject, std::string_view text,
                            uint64_t wall_ns) {
  const auto id = static_cast<uint32_t>(error);
  const std::string_view key = subject.substr(0, kErrorSubjectBytes);
  uint32_t subjects = 0;
  for (uint32_t i = 0; i < capacity_; ++i) {
    ErrorEntry& entry = entries_[i];
    const uint32_t there = entry.error.load(std::memory_order_relaxed);  // our own store
    if (there == id) ++subjects;
    if (there != 0 && (there != id || entry.subject.get() != key)) continue;
    if (there == 0 && subjects >= kErrorSubjects && key != kOtherSubjects) {
      return record(error, kOtherSubjects, std::string(key) + ": " + std::string(text), wall_ns);
    }
    entry.version.begin_write();
    if (there == 0) {
      entry.error.store(id, std::memory_order_release);
      entry.subject.set(key);
      entry.first_wall_ns.set(wall_ns);
    }
    entry.count.add(1);
    entry.last_wall_ns.set(wall_ns);
    entry.text.set(text.substr(0, kErrorTextBytes));
    entry.version.end_write();
    return true;
  }
  return false;
}

std::vector<ErrorRecord> read_error_log(const std::byte* area, uint64_t bytes) {
  std::vector<ErrorRecord> records;
  const auto* entries = reinterpret_cast<const ErrorEntry*>(area);
  for (uint64_t i = 0; i < bytes / sizeof(ErrorEntry); ++i) {
    const ErrorEntry& entry = entries[i];
    ErrorRecord record;
    const bool whole = entry.version.read([&] {
      record.error = entry.error.load(std::memory_order_acquire);
      record.count = entry.count.get();
      record.first_wall_ns = entry.first_wall_ns.get();
      record.last_wall_ns = entry.last_wall_ns.get();
      record.subject = entry.subject.get();
      record.text = entry.text.get();
    });
    record.torn = !whole;
    if (record.error == 0) break;  // entries are used from the first on
    records.push_back(std::move(record));
  }
  return records;
}

Status export_error_log(const std::vector<ErrorRecord>& records, std::string_view title,
                        const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  file << printable(title) << '\n';
  for (const ErrorRecord& record : records) {
    file << error_name(record.error) << ' ' << printable(record.subject)
         << " count=" << record.count << " first=" << utc_text(record.first_wall_ns)
         << " last=" << utc_text(record.last_wall_ns) << (record.torn ? " (cut off)" : "") << ": "
         << printable(record.text) << '\n';
  }
  file.close();
  if (file) return {};
  return errno_status(Code::kNoResources, "writing the error log " + path, errno);
}

}  // namespace wherry::shm
