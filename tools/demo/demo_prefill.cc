// Prefill: the prompt's KV cache, in blocks of a fully contiguous layout of its own region.
#include <cstdio>

#include "tools/demo/demo.h"

namespace wherry::demo {

Status run_prefill(const DemoOptions& options) {
  Result<std::vector<int>> tokens = prompt_tokens(options.prompt);
  if (!tokens.ok()) return tokens.status();
  Result<Part> part = open_part(options, "prefill", LayoutKind::kFullyContiguous);
  if (!part.ok()) return part.status();

  HandOver hand_over;
  hand_over.position = static_cast<int>(tokens->size()) - 1;
  hand_over.token = tokens->back();
  for (uint32_t page = 0; page < blocks_for(static_cast<int>(tokens->size())); ++page) {
    hand_over.blocks.push_back((page * 7 + 3) % kMaxBlocks);  // pages lie wherever blocks are free
  }
  const KvView view = KvView::fully_contiguous(part->region.data, hand_over.blocks);
  if (Status status = prefill(part->model, *tokens, view); !status.ok()) return status;
  std::printf("prefill: computed %zu tokens into %zu blocks, fully contiguous\n", tokens->size(),
              hand_over.blocks.size());

  if (Status status = part->client.publish(part->layout, Tier::kG2, Rights::kRead, {"decode"});
      !status.ok())
    return status;
  if (Status status = tell(part->client, "decode", hand_over.encode()); !status.ok()) return status;
  Result<std::string> answer = hear(part->client, "decode");
  if (!answer.ok()) return answer.status();
  std::printf("prefill: decode has %s; leaving\n", answer->c_str());
  return {};
}

}  // namespace wherry::demo
