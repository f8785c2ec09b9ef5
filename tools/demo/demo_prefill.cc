// Prefill: the prompt's KV cache, in blocks of a fully contiguous layout of its own region.
#include <cstdio>

#include "tools/demo/demo.h"

namespace wherry::demo {

Status run_prefill(const DemoOptions& options) {
  Result<TinyLm> model = TinyLm::load(options.model);
  if (!model.ok()) return model.status();
  Result<std::vector<int>> tokens = prompt_tokens(options.prompt);
  if (!tokens.ok()) return tokens.status();

  Result<Client> client = attach(options, "prefill");
  if (!client.ok()) return client.status();
  const Geometry geometry = cache_geometry(LayoutKind::kFullyContiguous);
  Result<Region> region = client->create_region(geometry.part_bytes());
  if (!region.ok()) return region.status();
  Result<LayoutHandle> layout =
      client->register_layout(fully_contiguous(region->handle, 0, geometry));
  if (!layout.ok()) return layout.status();

  HandOver hand_over;
  hand_over.position = static_cast<int>(tokens->size()) - 1;
  hand_over.token = tokens->back();
  for (uint32_t page = 0; page < blocks_for(static_cast<int>(tokens->size())); ++page) {
    hand_over.blocks.push_back((page * 7 + 3) % kMaxBlocks);  // pages lie wherever blocks are free
  }
  const KvView view = KvView::fully_contiguous(region->data, hand_over.blocks);
  if (Status status = prefill(*model, *tokens, view); !status.ok()) return status;
  std::printf("prefill: computed %zu tokens into %zu blocks, fully contiguous\n", tokens->size(),
              hand_over.blocks.size());

  if (Status status = client->publish(*layout, Tier::kG2, Rights::kRead, {"decode"}); !status.ok())
    return status;
  if (Status status = tell(*client, "decode", hand_over.encode()); !status.ok()) return status;
  Result<std::string> answer = hear(*client, "decode");
  if (!answer.ok()) return answer.status();
  std::printf("prefill: decode has %s; leaving\n", answer->c_str());
  return {};
}

}  // namespace wherry::demo
