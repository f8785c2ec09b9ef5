// Messages: the control protocol as this side speaks it (shm/protocol.h has every message).
// Internal.
//
// Each call_ function sends one request over a ControlLink and waits for its one reply; its Status
// is what the engine said, or ENGINE_GONE, TIMED_OUT, INTERNAL (an answer that is not what the
// protocol promises).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clientlib/json.h"
#include "clientlib/types.h"
#include "shm/file_descriptor.h"

namespace wherry::detail {

struct Answer {
  JsonReader body;
  std::vector<shm::UniqueFd> descriptors;
};

// Something that sends requests and knows which reply is whose.
class ControlLink {
 public:
  virtual ~ControlLink() = default;
  // `body` holds the request's own keys; type, version and id are put in.
  virtual Result<Answer> call(const char* type, const JsonWriter& body,
                              std::vector<shm::UniqueFd> descriptors, uint64_t deadline_ns) = 0;
};

// A message from the engine.
struct Incoming {
  enum class Kind : uint8_t { kReply, kState, kStale, kClosing, kOther };
  Kind kind = Kind::kOther;
  uint64_t id = 0;                // kReply
  Status status;                  // kReply: what the engine refused it for, or OK
  JsonReader body;                // kReply
  std::string state;              // kState
  std::string reason;             // kState, kClosing
  std::vector<uint64_t> handles;  // kStale
};
Result<Incoming> decode_incoming(const std::string& text);

std::string encode_request(const char* type, uint64_t id, const JsonWriter& body);

struct HelloAnswer {
  std::string engine;
  std::string state;
  uint64_t engine_incarnation = 0;
  int64_t clock_offset_ns = 0;
  uint64_t default_deadline_ms = 30'000;
  shm::UniqueFd engine_pidfd;
};
Result<HelloAnswer> call_hello(ControlLink& link, const InstanceId& instance, uint32_t rank,
                               uint64_t deadline_ns);

struct ChannelAnswer {
  uint32_t number = 0;
  shm::UniqueFd c2e;
  shm::UniqueFd e2c;
  shm::UniqueFd eventfd;
  shm::UniqueFd wake_socket;
};
// 0 slots = the engine's default; `notifications` only for a session's first channel.
Result<ChannelAnswer> call_open_channel(ControlLink& link, uint32_t submission_slots,
                                        bool notifications, uint32_t notification_slots,
                                        bool descriptor);
Status call_channel_mapped(ControlLink& link, uint32_t number);

struct RegionAnswer {
  uint64_t handle = 0;
  bool writable = false;
};
Result<RegionAnswer> call_register_region(ControlLink& link, int memory_fd, uint64_t offset,
                                          uint64_t length);
Status call_free_region(ControlLink& link, uint64_t handle);

struct EnginePart {
  uint64_t region = 0;  // the engine's handle
  uint64_t offset = 0;
  uint64_t length = 0;
};
Result<uint64_t> call_register_layout(ControlLink& link, const Geometry& geometry,
                                      const std::vector<EnginePart>& parts);
Status call_free_layout(ControlLink& link, uint64_t handle);

Status call_publish(ControlLink& link, uint64_t layout, Tier tier, Rights rights,
                    const std::vector<InstanceId>& to);
Status call_unpublish(ControlLink& link, uint64_t layout);

struct FoundAnswer {
  uint64_t handle = 0;
  Geometry geometry;
  std::vector<uint64_t> part_bytes;
  Rights rights = Rights::kRead;
  uint64_t incarnation = 0;
};
Result<FoundAnswer> call_find_layout(ControlLink& link, const InstanceId& instance, uint32_t rank,
                                     Tier tier, uint64_t deadline_ns);
Result<uint64_t> call_find_client(ControlLink& link, const InstanceId& instance, uint32_t rank);
Status call_release_found(ControlLink& link, uint64_t handle);

Result<std::vector<TransportInfo>> call_transports(ControlLink& link);
Status call_detach(ControlLink& link, uint64_t deadline_ns);

}  // namespace wherry::detail
