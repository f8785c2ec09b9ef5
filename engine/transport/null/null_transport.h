// The null transport: says that runs have arrived and moves nothing. It shows what everything
// around the copies costs; only for benchmarks, only where the engine was started with
// --allow-null, and only for requests that name it.
#pragma once

#include <memory>
#include <string>

#include "engine/transport/local_transport.h"

namespace wherry::engine {

class NullTransport final : public LocalTransport {
 public:
  TransportId id() const override { return TransportId::kNull; }
  Availability available() const override { return {true, ""}; }
  std::string info() const override { return "moves nothing: benchmarks only"; }
  std::unique_ptr<Lane> make_lane(uint32_t poller) override;
};

}  // namespace wherry::engine
