// The memory transport: copies between two mapped regions of this host, in bounded pieces between
// polls.
#pragma once

#include <memory>
#include <string>

#include "engine/transport/local_transport.h"

namespace wherry::engine {

class MemoryTransport final : public LocalTransport {
 public:
  // `piece_bytes`: most that is copied between two looks at anything else.
  explicit MemoryTransport(uint64_t piece_bytes) : piece_bytes_(piece_bytes) {}

  TransportId id() const override { return TransportId::kMemory; }
  Availability available() const override { return {true, ""}; }
  std::string info() const override {
    return "copies in pieces of " + std::to_string(piece_bytes_) + " bytes";
  }
  std::unique_ptr<Lane> make_lane(uint32_t poller) override;

 private:
  uint64_t piece_bytes_;
};

}  // namespace wherry::engine
