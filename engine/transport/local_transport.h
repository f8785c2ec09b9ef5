// LocalTransport: what transports without a remote side have in common: nothing to pin, nothing to
// export, nobody to connect to. Base of `memory` and `null`.
#pragma once

#include <string>

#include "engine/transport/transport.h"

namespace wherry::engine {

class LocalTransport : public Transport {
 public:
  TransportLevel level() const override { return TransportLevel::kMemory; }
  Status start() override { return {}; }
  void stop() override {}
  Status register_mapping(const Mapping& /*mapping*/) override { return {}; }
  void release_mapping(const Mapping& /*mapping*/) override {}
  Result<std::string> export_range(const Mapping& /*mapping*/, uint64_t /*offset*/,
                                   uint64_t /*length*/, uint8_t /*rights*/) override {
    return unsupported("exporting memory");
  }
  Status revoke_range(const std::string& /*token*/) override {
    return unsupported("revoking memory");
  }
  Result<std::string> offer(uint64_t /*peer*/) override { return unsupported("connecting"); }
  Result<std::string> accept(uint64_t /*peer*/, const std::string& /*offer*/) override {
    return unsupported("connecting");
  }
  Status finish(uint64_t /*peer*/, const std::string& /*answer*/) override {
    return unsupported("connecting");
  }

 private:
  Status unsupported(const char* what) const {
    return {Code::kUnsupported, std::string(what) + ": wanted a transport between hosts, got " +
                                    std::string(transport_name(id())) + "; it stays on this host"};
  }
};

}  // namespace wherry::engine
