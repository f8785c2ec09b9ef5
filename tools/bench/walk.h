// Walk: which blocks the requests of a copy benchmark name, and where their pieces lie.
//
// Block ids come in a scattered order on both sides, as a KV cache gives them out after a while, so
// no two blocks ever merge into one run. Each request takes the next kBlocksPerRequest of them,
// round and round through both pools ("cold": nothing of a block is in any cache when its turn
// comes again), or always the first ones ("warm"). The floors walk on from the same place over the
// same pieces. Main thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "clientlib/layout.h"

namespace wherry::bench {

inline constexpr uint32_t kBlocksPerRequest = 32;

// A pair of layouts over the two pools: the source fully contiguous, the destination of `kind`,
// their longest common run `piece_bytes`. Nothing when the pools are too small for a request.
struct Shape {
  Geometry source;
  Geometry destination;
  uint64_t piece_bytes = 0;
};
std::optional<Shape> make_shape(LayoutKind kind, uint64_t piece_bytes, uint64_t pool_bytes);

// The ids 0 to `blocks` - 1, shuffled: always alike for one seed.
std::vector<BlockId> scattered(uint32_t blocks, uint32_t seed);

struct Piece {
  std::byte* to;
  const std::byte* from;
};

class Walk {
 public:
  // `parts`: of the destination layout, in the region whose memory begins at `to`.
  Walk(const Shape& shape, bool warm, const std::byte* from, std::byte* to,
       std::span<const LayoutPart> parts);

  struct Step {
    std::span<const BlockId> source;
    std::span<const BlockId> destination;
    std::span<const Piece> pieces;  // the same bytes
  };
  // The next request's.
  Step next();

  bool warm() const { return warm_; }
  uint64_t request_bytes() const { return request_bytes_; }
  uint64_t piece_bytes() const { return piece_bytes_; }

 private:
  bool warm_;
  uint64_t piece_bytes_;
  uint64_t request_bytes_;
  size_t pieces_per_request_;
  std::vector<BlockId> source_;
  std::vector<BlockId> destination_;
  std::vector<Piece> pieces_;
  size_t requests_;
  size_t at_ = 0;
};

}  // namespace wherry::bench
