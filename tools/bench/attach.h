// Clients of the bench's own engine, and small layouts for them. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include "clientlib/client.h"
#include "tools/bench/engine_child.h"

namespace wherry::bench {

// Attaches as that instance; not again when the engine dies.
Result<Client> attach(const EngineChild& engine, const std::string& instance);

// Two fully contiguous layouts of one geometry, behind each other in one region of the client's,
// whose pages have been touched.
struct LayoutPair {
  Region region;
  LayoutHandle source;
  LayoutHandle destination;
};
// Of `blocks` blocks of `block_bytes` (a multiple of 64) each.
Result<LayoutPair> make_layouts(Client& client, uint32_t blocks, uint64_t block_bytes);

}  // namespace wherry::bench
