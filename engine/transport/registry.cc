#include "engine/transport/registry.h"

#include "engine/control/config.h"
#include "engine/transport/memory/memory_transport.h"
#include "engine/transport/null/null_transport.h"

namespace wherry::engine {

std::string_view transport_name(TransportId id) {
  switch (id) {
    case TransportId::kNone:
      return "none";
    case TransportId::kMemory:
      return "memory";
    case TransportId::kVerbs:
      return "verbs";
    case TransportId::kTcp:
      return "tcp";
    case TransportId::kNull:
      return "null";
  }
  return "unknown";
}

std::vector<std::unique_ptr<Transport>> make_transports(const TransportsConfig& config,
                                                        uint32_t pollers, bool allow_null) {
  std::vector<std::unique_ptr<Transport>> transports;
  if (config.memory.enabled) {
    transports.push_back(std::make_unique<MemoryTransport>(
        MemoryTransportOptions{config.memory.piece_bytes, config.memory.copy_threads, pollers}));
  }
  if (config.null.enabled && allow_null) transports.push_back(std::make_unique<NullTransport>());
  return transports;
}

}  // namespace wherry::engine
