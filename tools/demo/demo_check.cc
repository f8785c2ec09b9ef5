// Check: computes prompt and text alone, and compares bytes and words with what decode had and
// wrote.
#include <cstdio>
#include <cstring>
#include <set>

#include "tools/demo/demo.h"

namespace wherry::demo {
namespace {

// Compares position by position; says where the first difference of each block is.
Status compare_caches(const KvView& theirs, const KvView& ours, int positions, int prompt) {
  std::set<int> bad_pages;
  for (int position = 0; position < positions; ++position) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int outer = 0; outer < kOuter; ++outer) {
        // Bit by bit: the same arithmetic has to give the same bytes.
        const void* const their_token = theirs.at(position, layer, outer);
        const void* const our_token = ours.at(position, layer, outer);
        if (std::memcmp(their_token, our_token, kTokenBytes) == 0) continue;
        const int page = position / kPageTokens;
        if (!bad_pages.insert(page).second) continue;
        std::printf("check: block %u (page %d of the text%s) differs: layer %d, %s, token %d\n",
                    theirs.blocks[static_cast<size_t>(page)], page,
                    position < prompt ? ", pulled" : "", layer, outer == 0 ? "keys" : "values",
                    position);
      }
    }
  }
  if (bad_pages.empty()) return {};
  const uint32_t block = theirs.blocks[static_cast<size_t>(*bad_pages.begin())];
  return {Code::kChecksum, "KV cache: wanted the bytes of a recomputation, got others in " +
                               std::to_string(bad_pages.size()) + " block(s), first block " +
                               std::to_string(block) +
                               "; the cache was changed on its way or later"};
}

}  // namespace

Status run_check(const DemoOptions& options) {
  Result<std::vector<int>> tokens = prompt_tokens(options.prompt);
  if (!tokens.ok()) return tokens.status();
  Result<Part> part = open_part(options, "check", LayoutKind::kFullyContiguous);
  if (!part.ok()) return part.status();

  Result<std::string> message = hear(part->client, "decode");
  if (!message.ok()) return message.status();
  Result<HandOver> given = HandOver::decode(*message);
  if (!given.ok()) return given.status();
  Result<FoundLayout> found =
      part->client.find_layout("decode", 0, Tier::kG2, deadline_in_ms(kPatienceMs));
  if (!found.ok()) return found.status();
  Result<Completion> pulled = finish(part->client.execute_local_transfer(
      found->handle, part->layout, given->blocks, given->blocks));
  if (!pulled.ok()) return pulled.status();

  // One process alone: prompt and text with a cache in ordinary memory.
  std::vector<std::byte> memory(size_t{kMaxBlocks} * kBlockBytes);
  std::vector<uint32_t> pages;
  for (uint32_t page = 0; page < kMaxBlocks; ++page) pages.push_back(page);
  const KvView alone = KvView::fully_contiguous(memory.data(), pages);
  if (Status status = prefill(part->model, *tokens, alone); !status.ok()) return status;
  const int prompt = static_cast<int>(tokens->size());
  Result<std::vector<int>> text =
      continue_text(part->model, tokens->back(), prompt - 1, given->position + 1, alone);
  if (!text.ok()) return text.status();

  const KvView theirs = KvView::fully_contiguous(part->region.data, given->blocks);
  Status bytes = compare_caches(theirs, alone, given->position + 1, prompt);
  std::printf("check: KV bytes of %d positions against a recomputation: %s\n", given->position + 1,
              bytes.ok() ? "equal" : "DIFFERENT");
  const bool same_text = wherry::demo::decode(*text) == given->text;
  std::printf("check: text against what one process alone writes: %s\n",
              same_text ? "equal" : "DIFFERENT");
  if (Status status = tell(part->client, "decode", "checked"); !status.ok()) return status;
  if (!bytes.ok()) return bytes;
  if (same_text) return {};
  return {Code::kChecksum,
          "text: wanted what one process alone writes, got another; the caches differ"};
}

}  // namespace wherry::demo
