// The plain values of the client API: handles, options, completions.
//
// Values without an owner: copy and keep them anywhere, use them from any thread. Sizes are bytes,
// times are CLOCK_MONOTONIC nanoseconds of this process, block ids count from 0 inside a layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shm/geometry.h"
#include "shm/status.h"

namespace wherry {

using InstanceId = std::string;  // 1 to 64 of [A-Za-z0-9._-]
using BlockId = uint32_t;

inline constexpr uint64_t kForever = UINT64_MAX;  // a deadline that never comes

// CLOCK_MONOTONIC now, in nanoseconds.
uint64_t monotonic_ns();

// The absolute deadline that is `milliseconds` away; kForever when that does not fit.
uint64_t deadline_in_ms(uint64_t milliseconds);

// Handles are the library's own: those of regions and layouts that the client owns stay valid over
// a restart of the engine. 0 is no handle. A handle of something that was freed, or that was found
// and whose owner is gone, answers STALE; it never means another thing.
struct RegionHandle {
  uint64_t value = 0;
  friend bool operator==(RegionHandle a, RegionHandle b) { return a.value == b.value; }
};
struct LayoutHandle {
  uint64_t value = 0;
  friend bool operator==(LayoutHandle a, LayoutHandle b) { return a.value == b.value; }
};
// Another client of the same engine, as the target of notifications.
struct ClientHandle {
  uint64_t value = 0;
};
// A region or a layout, where either will do.
struct MemoryHandle {
  uint64_t value = 0;
  MemoryHandle() = default;
  MemoryHandle(RegionHandle region) : value(region.value) {}  // NOLINT: conversion is the point
  MemoryHandle(LayoutHandle layout) : value(layout.value) {}  // NOLINT: conversion is the point
};

enum class Rights : uint8_t { kRead = 1, kReadWrite = 3 };

// Memory the engine may read and write for this client. `data` is the start of the registered bytes
// in this process; null when the library did not map them (a descriptor registered as it is).
struct Region {
  RegionHandle handle;
  std::byte* data = nullptr;
  uint64_t bytes = 0;   // whole pages
  uint64_t offset = 0;  // adopted memory: where the caller's address lies in it
  bool writable = true;
  bool guarded = false;  // adopted memory: writers during the call were held up, none was lost
};

// Another client's published layout, as find_layout() returned it.
struct FoundLayout {
  LayoutHandle handle;
  Geometry geometry;
  std::vector<uint64_t> part_bytes;  // length of each part
  Rights rights = Rights::kRead;
  uint64_t incarnation = 0;  // of its owner's session
};

enum class Priority : uint8_t { kNormal = 0, kHigh = 1 };

enum class TransportKind : uint8_t { kAny = 0, kMemory = 1, kVerbs = 2, kTcp = 3, kNull = 4 };
const char* transport_kind_name(TransportKind kind);  // "any", "memory", ...

// A range of heads of both layouts; for later: a transfer that names one answers UNSUPPORTED.
struct HeadSlice {
  uint32_t head_begin = 0;
  uint32_t head_end = 0;
};

struct TransferOptions {
  // Half-open range of layers; 0, 0 = all of them.
  uint32_t layer_begin = 0;
  uint32_t layer_end = 0;
  // When the request ends as TIMED_OUT. Give one: an absolute deadline or a time from the call on.
  // Both 0 = the engine's default (its `default_deadline_ms`).
  uint64_t deadline_ns = 0;
  uint64_t timeout_ns = 0;
  Priority priority = Priority::kNormal;
  // Any other than kAny: NO_TRANSPORT instead of another path.
  TransportKind required_transport = TransportKind::kAny;
  bool checksum = false;  // end-to-end checksum; UNSUPPORTED where the path has none
  // At most 1,024 bytes for the owner of the other side, sent after the data.
  std::string notification;
  std::optional<HeadSlice> head_slice;
};

// Copies `length` bytes. Offsets count from the start of the region, or of the layout's parts laid
// end to end.
struct RangeOp {
  MemoryHandle source;
  uint64_t source_offset = 0;
  MemoryHandle destination;
  uint64_t destination_offset = 0;
  uint64_t length = 0;

  static RangeOp read(MemoryHandle local, uint64_t local_offset, MemoryHandle remote,
                      uint64_t remote_offset, uint64_t length) {
    return {remote, remote_offset, local, local_offset, length};
  }
  static RangeOp write(MemoryHandle local, uint64_t local_offset, MemoryHandle remote,
                       uint64_t remote_offset, uint64_t length) {
    return {local, local_offset, remote, remote_offset, length};
  }
};

// One block that did not arrive.
struct FailedBlock {
  uint32_t index = 0;   // in the block lists the caller gave
  uint32_t member = 0;  // which notification of an aggregate; 0 otherwise
  Code code = Code::kOk;
  uint8_t wc_status = 0;      // ibv_wc_status where verbs carried it
  uint16_t error_number = 0;  // errno where there was one
};

// How a request ended. `status` names the first cause; `local_quiet` and `remote_quiet` say whether
// the buffers may be used again: while one is false, somebody may still read or write that side.
struct Completion {
  Code status = Code::kOk;
  bool local_quiet = true;
  bool remote_quiet = true;
  uint8_t wc_status = 0;
  TransportKind transport = TransportKind::kAny;  // that carried it; kAny = none did
  uint16_t device = 0;
  uint16_t error_number = 0;
  uint32_t vendor_error = 0;
  uint64_t request_id = 0;  // as the engine's tools show it (of the first record)
  uint64_t bytes = 0;       // known to have arrived
  uint64_t blocks_ok = 0;
  uint64_t blocks_failed = 0;
  uint64_t submit_ns = 0;
  uint64_t start_ns = 0;  // first byte posted
  uint64_t end_ns = 0;
  // The failed blocks. Complete when blocks_ok > 0; when nothing arrived it may name only those to
  // blame.
  std::vector<FailedBlock> failed;

  bool ok() const { return status == Code::kOk; }
  // "OVERLAP: request 17: 0 blocks arrived, 8 failed, first block 3 (OVERLAP); <what to do>", or
  // "OK".
  std::string to_string() const;
};

struct TransportInfo {
  std::string name;
  TransportKind kind = TransportKind::kAny;
  uint32_t level = 0;  // 1 tcp, 2 nic, 3 memory: the highest that both ends have carries a request
  bool available = false;
  std::string reason;  // why not
  std::string info;    // devices, addresses
};

enum class EngineLife : uint8_t {
  kRunning = 0,
  kDraining = 1,  // takes no new requests
  kStopped = 2,   // ended by an operator
  kFailed = 3,
  kGone = 4,      // died, or ended this session; the library attaches again by itself
  kDetached = 5,  // this client has detached
};
const char* engine_life_name(EngineLife life);  // "running", ...

struct EngineState {
  EngineLife life = EngineLife::kGone;
  std::string reason;  // what the operator or the failure said
  std::string engine;  // its name
  uint64_t incarnation = 0;
  uint32_t attached = 0;  // how often this client has attached: 1 + restarts it has lived through
};

// A message from another client.
struct Notification {
  InstanceId instance;
  uint32_t rank = 0;
  std::string bytes;
  uint64_t sequence = 0;        // counts up per sender session
  uint64_t sender_session = 0;  // changes when the sender attaches again
};

}  // namespace wherry
