// Messages: what clients and administrators ask, decoded and checked field by field.
//
// Plain values; any thread. The texts come from outside: whatever they are, decoding ends with a
// checked request or a Status that names the key and what is wanted, in bounded time and memory.
// What a value means (whose handle, which limit) is checked where it is used. shm/protocol.h has
// the messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shm/geometry.h"
#include "shm/status.h"

namespace wherry::engine {

inline constexpr uint32_t kMaxLayoutParts = 262144;
inline constexpr uint32_t kMaxPublishTargets = 1024;
inline constexpr uint32_t kMaxReasonBytes = 200;
inline constexpr uint32_t kMaxFindTimeoutMs = 24 * 60 * 60 * 1000;

struct Hello {
  uint32_t protocol_min = 0;
  uint32_t protocol_max = 0;
  uint32_t layout_major = 0;
  uint32_t layout_minor = 0;
  uint64_t features = 0;
  std::string instance;
  uint32_t rank = 0;
  uint32_t pid = 0;
  int64_t clock_ns = 0;
};
struct OpenChannel {
  static constexpr uint32_t kDefault = UINT32_MAX;  // the engine's own default
  uint32_t submission_slots = kDefault;
  uint32_t notification_slots = kDefault;
  bool descriptor = false;
};
struct ChannelMapped {
  uint32_t channel = 0;
};
struct CloseChannel {
  uint32_t channel = 0;
};
struct RegisterRegion {
  uint64_t offset = 0;
  uint64_t length = 0;
};
struct FreeRegion {
  uint64_t handle = 0;
};
struct PartSpec {
  uint64_t region = 0;  // handle
  uint64_t offset = 0;  // in the region
  uint64_t length = 0;
};
struct RegisterLayout {
  Geometry geometry;  // the fields are known values; not yet checked against each other
  std::vector<PartSpec> parts;
};
struct FreeLayout {
  uint64_t handle = 0;
};
struct Publish {
  uint64_t layout = 0;
  Tier tier = Tier::kG2;
  bool writable = false;
  bool to_all = false;
  std::vector<std::string> to;
};
struct Unpublish {
  uint64_t layout = 0;
};
struct FindLayout {
  std::string instance;
  uint32_t rank = 0;
  Tier tier = Tier::kG2;
  uint32_t timeout_ms = 0;
};
struct FindClient {
  std::string instance;
  uint32_t rank = 0;
};
struct ReleaseFound {
  uint64_t handle = 0;
};
struct ListTransports {};
struct Detach {};
struct Admin {
  enum class Command : uint8_t { kStatus, kClients, kDrain, kStop, kKill, kTransports };
  Command command = Command::kStatus;
  std::string reason;  // printable
};

using RequestBody =
    std::variant<Hello, OpenChannel, ChannelMapped, CloseChannel, RegisterRegion, FreeRegion,
                 RegisterLayout, FreeLayout, Publish, Unpublish, FindLayout, FindClient,
                 ReleaseFound, ListTransports, Detach, Admin>;

struct ControlRequest {
  uint64_t id = 0;
  uint32_t version = 0;
  RequestBody body;
};

// Fills in `request`; when it fails `request->id` is the id as far as there was one, for the
// answer. VERSION_MISMATCH (a hello without a common protocol version) names both sides' versions.
Status decode_request(const std::string& text, ControlRequest* request);

// Whether `name` may be an instance: 1 to 64 of [A-Za-z0-9._-].
bool valid_instance(std::string_view name);

// `text` without line breaks and other control characters, and at most kMaxReasonBytes long.
std::string printable(std::string_view text);

}  // namespace wherry::engine
