// Running the model over a prompt and on from there: what prefill, decode and the check share.
//
// Everybody draws tokens with the same seed, by position alone, so a text that one process
// continues on another's KV cache is the one that a single process would have written. Any thread;
// nothing is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "shm/status.h"
#include "tools/demo/tiny_lm.h"

namespace wherry::demo {

inline constexpr std::uint64_t kSeed = 20260101;
inline constexpr std::uint32_t kMaxBlocks = kContext / kPageTokens;

// Blocks that hold this many tokens.
constexpr std::uint32_t blocks_for(int tokens) {
  return static_cast<std::uint32_t>((tokens + kPageTokens - 1) / kPageTokens);
}

// Fills positions 0 to tokens.size() - 1 of the cache.
Status prefill(const TinyLm& model, const std::vector<int>& tokens, const KvView& kv);

// Goes on from `last_token` at `position` (whose earlier positions the cache holds), token by
// token, until `end` positions are filled. Returns the new tokens.
Result<std::vector<int>> continue_text(const TinyLm& model, int last_token, int position, int end,
                                       const KvView& kv);

}  // namespace wherry::demo
