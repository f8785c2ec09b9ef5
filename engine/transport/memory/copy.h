// The two ways to copy: through the caches, and past them.
//
// Streaming stores spare the destination's lines from being read first and the caches from being
// filled with blocks that nobody reads soon: about half as fast again on cold memory, half as fast
// on memory that is in cache. Any thread; sources and destinations do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wherry::engine {

struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

void copy_cached(const CopyPiece& piece);

inline constexpr uint32_t kStreams = 4;

// Copies `count` (at most kStreams) pieces side by side, a little of each in turn: a core keeps
// more reads of cold memory under way when they come from several pages than from one. Before
// anybody is told of the data, fence_streaming().
void copy_streaming(const CopyPiece* pieces, uint32_t count);

// What follows is seen after what was streamed before.
void fence_streaming();

}  // namespace wherry::engine
