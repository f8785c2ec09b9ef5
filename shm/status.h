// Status codes, Status and Result<T>: how every part of Wherry reports errors.
//
// The codes travel in completion records and over the control socket, so a number is never reused
// or changed. Values are plain data without an owner; any thread may use its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace wherry {

enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,     // the call makes no sense, whatever the state of the engine
  kOutOfRange = 2,          // a block id, layer range or byte range past the end
  kOverlap = 3,             // a destination twice, or source meets destination
  kIncompatibleLayout = 4,  // geometry or inner order of the two layouts differ
  kStale = 5,               // the handle, peer or client named is of a former life
  kUnknownInstance = 6,     // nobody of that (instance, rank), or nothing published there
  kAlreadyExists = 7,       // the name is taken by somebody alive
  kNotPermitted = 8,        // not published to the caller, or not with that right
  kUnsupported = 9,         // a form this build or host does not do
  kNoTransport = 10,        // no allowed transport joins the two ends
  kUnreachable = 11,        // the peer or engine cannot be reached
  kTimedOut = 12,           // the deadline passed
  kCancelled = 13,          // the caller cancelled
  kRemoteAccess = 14,       // the remote side refused the access
  kTransport = 15,          // the path failed; the native code tells how
  kStorage = 16,            // the disk or object store failed
  kChecksum = 17,           // the data arrived changed
  kMemoryFault = 18,        // a region lost its pages under the transfer
  kNoResources = 19,        // memory, quota, descriptors or slots are used up
  kRingFull = 20,           // no free submission slot yet
  kNoCredit = 21,           // requests in flight and unreaped completions hold all credits
  kBoxFull = 22,            // the receiver does not read its notifications
  kDraining = 23,           // the engine takes no new requests
  kVersionMismatch = 24,    // the two sides speak no common version
  kAborted = 25,            // the engine or the session ended before the request did
  kNotStarted = 26,         // the engine died before it began: safe to repeat
  kEngineGone = 27,         // the engine died meanwhile: the outcome is unknown
  kInternal = 28,           // a bug of ours; please report it
};
inline constexpr uint8_t kCodeCount = 29;

// The code's name as documents and logs spell it, such as "OUT_OF_RANGE"; "CODE_<n>" is never
// returned: an unknown number reads "UNKNOWN_CODE".
std::string_view code_name(Code code);

// The inverse of code_name; nullopt for a name that is none.
std::optional<Code> code_from_name(std::string_view name);

// An outcome: a code and, unless OK, "what failed: wanted X, got Y; do Z".
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // "OUT_OF_RANGE: block id: wanted below 8, got 9; ..." or "OK".
  std::string to_string() const;

  // The same failure seen from one level up: "<context>: <message>".
  Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the Status that says why there is none (never an OK status).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: conversion is the point
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: conversion is the point

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  Code code() const { return status_.code(); }

  // Only when ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

// "<what>: <strerror(error)> (errno <error>)" as a Status of the given code.
Status errno_status(Code code, std::string_view what, int error);

}  // namespace wherry
