#include "shm/status.h"

#include <array>
#include <cstring>

namespace wherry {
namespace {

constexpr std::array<std::string_view, kCodeCount> kNames = {
    "OK",           "INVALID_ARGUMENT", "OUT_OF_RANGE",   "OVERLAP",       "INCOMPATIBLE_LAYOUT",
    "STALE",        "UNKNOWN_INSTANCE", "ALREADY_EXISTS", "NOT_PERMITTED", "UNSUPPORTED",
    "NO_TRANSPORT", "UNREACHABLE",      "TIMED_OUT",      "CANCELLED",     "REMOTE_ACCESS",
    "TRANSPORT",    "STORAGE",          "CHECKSUM",       "MEMORY_FAULT",  "NO_RESOURCES",
    "RING_FULL",    "NO_CREDIT",        "BOX_FULL",       "DRAINING",      "VERSION_MISMATCH",
    "ABORTED",      "NOT_STARTED",      "ENGINE_GONE",    "INTERNAL",
};

}  // namespace

std::string_view code_name(Code code) {
  const auto index = static_cast<uint8_t>(code);
  return index < kCodeCount ? kNames[index] : std::string_view("UNKNOWN_CODE");
}

std::optional<Code> code_from_name(std::string_view name) {
  for (uint8_t i = 0; i < kCodeCount; ++i) {
    if (kNames[i] == name) return static_cast<Code>(i);
  }
  return std::nullopt;
}

std::string Status::to_string() const {
  std::string text(code_name(code_));
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context).append(": ").append(message_)};
}

Status errno_status(Code code, std::string_view what, int error) {
  return {code,
          std::string(what) + ": " + strerror(error) + " (errno " + std::to_string(error) + ")"};
}

}  // namespace wherry
