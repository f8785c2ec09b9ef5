#include "clientlib/types.h"

#include <ctime>

namespace wherry {
namespace {

// What to do about a request that ended so; null where there is nothing to say.
const char* advice(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "the engine found the request senseless: are both handles of the right kind?";
    case Code::kOutOfRange:
      return "name blocks, layers and bytes that both sides have";
    case Code::kOverlap:
      return "source and destination share bytes, or a destination is named twice; copy in two "
             "steps";
    case Code::kIncompatibleLayout:
      return "lengths or geometries of the two sides differ; use layouts that fit";
    case Code::kStale:
      return "a handle is of a former life; find the layout or client again";
    case Code::kUnknownInstance:
      return "the target is not attached";
    case Code::kNotPermitted:
      return "have the owner publish it to this instance, with the right that is needed";
    case Code::kUnsupported:
      return "this engine does not do that; split the request or leave the option out";
    case Code::kNoTransport:
      return "transports() says which there are";
    case Code::kTimedOut:
      return "the deadline passed; give it more time";
    case Code::kMemoryFault:
      return "a region lost its pages; do not punch holes into registered memory";
    case Code::kBoxFull:
      return "the receiver does not read its notifications; send again once it does";
    case Code::kDraining:
      return "the engine takes no new requests; use another or wait for its restart";
    case Code::kAborted:
      return "the engine ended or closed this session; engine_state() says why";
    case Code::kNotStarted:
      return "safe to repeat";
    case Code::kEngineGone:
      return "the engine died meanwhile: the outcome is unknown";
    case Code::kInternal:
      return "a bug; please report it";
    default:
      return nullptr;
  }
}

}  // namespace

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
  if (const char* what = advice(status)) text += std::string("; ") + what;
  return text;
}

}  // namespace wherry
