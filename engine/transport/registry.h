// The transports of an engine: which there are, by name, and which the configuration turns on.
#pragma once

#include <memory>
#include <vector>

#include "engine/transport/transport.h"

namespace wherry::engine {

struct TransportsConfig;

// One object per enabled transport, not started. `pollers`: how many will want lanes. `allow_null`:
// the engine was told --allow-null.
std::vector<std::unique_ptr<Transport>> make_transports(const TransportsConfig& config,
                                                        uint32_t pollers, bool allow_null);

}  // namespace wherry::engine
