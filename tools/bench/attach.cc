#include "tools/bench/attach.h"

#include <cstring>

namespace wherry::bench {

Result<Client> attach(const EngineChild& engine, const std::string& instance) {
  AttachOptions options;
  options.instance = instance;
  options.run_dir = engine.run_dir();
  options.wait_ms = 10'000;
  options.reattach = false;
  return Client::attach(options);
}

Result<LayoutPair> make_layouts(Client& client, uint32_t blocks, uint64_t block_bytes) {
  Geometry g;
  g.num_blocks = blocks;
  g.num_layers = 1;
  g.outer_dim = 1;
  g.page_size = 1;
  g.inner_dim = static_cast<uint32_t>(block_bytes / dtype_bytes(g.dtype));
  const uint64_t bytes = g.num_blocks * g.block_bytes();
  const Result<Region> region = client.create_region(2 * bytes);
  if (!region.ok()) return region.status();
  std::memset(region->data, 0x5a, region->bytes);
  LayoutPair pair;
  pair.region = *region;
  uint64_t offset = 0;
  for (LayoutHandle* layout : {&pair.source, &pair.destination}) {
    const Result<LayoutHandle> made =
        client.register_layout(fully_contiguous(region->handle, offset, g));
    if (!made.ok()) return made.status();
    *layout = *made;
    offset += bytes;
  }
  return pair;
}

}  // namespace wherry::bench
