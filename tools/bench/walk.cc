#include "tools/bench/walk.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace wherry::bench {
namespace {

constexpr uint32_t kPageSize = 16;  // tokens in a block
constexpr uint32_t kLayers = 32;    // of a model; fewer where a request would become too large
constexpr uint64_t kMaxRequestBytes = 64 << 20;

}  // namespace

std::vector<BlockId> scattered(uint32_t blocks, uint32_t seed) {
  std::vector<BlockId> ids(blocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  return ids;
}

std::optional<Shape> make_shape(LayoutKind kind, uint64_t piece_bytes, uint64_t pool_bytes) {
  Geometry g;
  g.kind = kind;
  g.outer_dim = 2;
  g.page_size = kPageSize;
  // The longest run of a layer-separate layout, block second, is one of K or V alone.
  const bool split = kind == LayoutKind::kLayerSeparateBlockSecond;
  const uint64_t region_bytes = split ? piece_bytes : piece_bytes / 2;
  g.inner_dim = static_cast<uint32_t>(region_bytes / (kPageSize * dtype_bytes(g.dtype)));
  g.num_layers = 1;
  if (kind != LayoutKind::kFullyContiguous) {
    const uint64_t most = std::min(kMaxRequestBytes, pool_bytes);
    const uint64_t layers = most / (kBlocksPerRequest * g.layer_bytes());
    g.num_layers = static_cast<uint32_t>(std::clamp<uint64_t>(layers, 1, kLayers));
  }
  g.num_blocks = static_cast<uint32_t>(pool_bytes / g.block_bytes());
  if (g.num_blocks < kBlocksPerRequest) return std::nullopt;
  Shape shape{g, g, piece_bytes};
  shape.source.kind = LayoutKind::kFullyContiguous;
  return shape;
}

Walk::Walk(const Shape& shape, bool warm, const std::byte* from, std::byte* to,
           std::span<const LayoutPart> parts)
    : warm_(warm),
      piece_bytes_(shape.piece_bytes),
      request_bytes_(kBlocksPerRequest * shape.source.block_bytes()),
      pieces_per_request_(request_bytes_ / piece_bytes_),
      source_(scattered(shape.source.num_blocks, 1)),
      destination_(scattered(shape.destination.num_blocks, 2)),
      requests_(source_.size() / kBlocksPerRequest) {
  const Geometry& s = shape.source;
  const Geometry& d = shape.destination;
  // How many layers and outers one piece covers.
  const uint32_t layers = d.kind == LayoutKind::kFullyContiguous ? d.num_layers : 1;
  const uint32_t outers = d.kind == LayoutKind::kLayerSeparateBlockSecond ? 1 : d.outer_dim;
  pieces_.reserve(requests_ * pieces_per_request_);
  for (size_t i = 0; i < requests_ * kBlocksPerRequest; ++i) {
    for (uint32_t layer = 0; layer < d.num_layers; layer += layers) {
      for (uint32_t outer = 0; outer < d.outer_dim; outer += outers) {
        const LayoutPart& part = parts[part_of(d, destination_[i], layer)];
        pieces_.push_back({to + part.offset + offset_in_part(d, destination_[i], layer, outer),
                           from + offset_in_part(s, source_[i], layer, outer)});
      }
    }
  }
}

Walk::Step Walk::next() {
  const size_t request = at_;
  if (!warm_) at_ = (at_ + 1) % requests_;
  const auto take = [request](auto span, size_t each) {
    return span.subspan(request * each, each);
  };
  return {take(std::span<const BlockId>(source_), kBlocksPerRequest),
          take(std::span<const BlockId>(destination_), kBlocksPerRequest),
          take(std::span<const Piece>(pieces_), pieces_per_request_)};
}

}  // namespace wherry::bench
