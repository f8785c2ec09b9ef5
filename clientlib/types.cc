#include "clientlib/types.h"

#include <ctime>

namespace wherry {

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t deadline_in_ms(uint64_t milliseconds) {
  uint64_t deadline = 0;
  if (__builtin_mul_overflow(milliseconds, uint64_t{1'000'000}, &deadline) ||
      __builtin_add_overflow(deadline, monotonic_ns(), &deadline)) {
    return kForever;
  }
  return deadline;
}

const char* transport_kind_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAny:
      return "any";
    case TransportKind::kMemory:
      return "memory";
    case TransportKind::kVerbs:
      return "verbs";
    case TransportKind::kTcp:
      return "tcp";
    case TransportKind::kNull:
      return "null";
  }
  return "unknown";
}

const char* engine_life_name(EngineLife life) {
  switch (life) {
    case EngineLife::kRunning:
      return "running";
    case EngineLife::kDraining:
      return "draining";
    case EngineLife::kStopped:
      return "stopped";
    case EngineLife::kFailed:
      return "failed";
    case EngineLife::kGone:
      return "gone";
    case EngineLife::kDetached:
      return "detached";
  }
  return "unknown";
}

std::string Completion::to_string() const {
  if (ok()) return "OK";
  std::string text = std::string(code_name(status)) + ": request " + std::to_string(request_id) +
                     ": " + std::to_string(blocks_ok) + " blocks arrived, " +
                     std::to_string(blocks_failed) + " failed";
  if (!failed.empty()) {
    text += ", first block " + std::to_string(failed.front().index) + " (" +
            std::string(code_name(failed.front().code)) + ")";
  }
  if (error_number != 0) text += ", errno " + std::to_string(error_number);
  if (wc_status != 0) text += ", wc status " + std::to_string(wc_status);
  if (!local_quiet) text += "; the local buffers are not quiet yet";
  if (!remote_quiet) text += "; the remote buffers are not quiet yet";
  return text;
}

}  // namespace wherry
