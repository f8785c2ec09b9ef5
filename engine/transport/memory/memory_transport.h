// The memory transport: copies between two mapped regions of this host, in bounded pieces between
// polls; cold ones on further cores too, where the config grants copy threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport/local_transport.h"
#include "engine/transport/memory/copy_thread.h"

namespace wherry::engine {

struct MemoryTransportOptions {
  // Most that a poller copies between two looks at anything else; of what the caches hold, twice.
  uint64_t piece_bytes = 131072;
  uint32_t copy_threads = 0;  // of each poller
  uint32_t pollers = 1;
};

class MemoryTransport final : public LocalTransport {
 public:
  explicit MemoryTransport(const MemoryTransportOptions& options) : options_(options) {}

  TransportId id() const override { return TransportId::kMemory; }
  Availability available() const override { return {true, ""}; }
  std::string info() const override;
  // NO_RESOURCES: no threads to be had.
  Status start() override;
  void stop() override { copiers_.clear(); }
  std::unique_ptr<Lane> make_lane(uint32_t poller) override;

 private:
  MemoryTransportOptions options_;
  std::vector<std::unique_ptr<CopyThread>> copiers_;  // each poller's behind each other
};

}  // namespace wherry::engine
