// Where the key and value vectors of a sequence lie in memory that the caller owns.
//
// A KvView holds addresses and strides only: it owns nothing, allocates no cache and checks nothing
// but what `capacity` tells. The same model code runs through it on every block layout. The memory
// must outlive the view; several threads may share a view as long as no two of them touch the same
// position while one writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace wherry::demo {

// The geometry of a block, as the demo registers it with the engine: float32, head after head
// within a token (NHD).
inline constexpr int kPageTokens = 16;
inline constexpr int kLayers = 6;
inline constexpr int kOuter = 2;  // 0 = keys, 1 = values
inline constexpr int kInner = 64;
inline constexpr std::uint64_t kTokenBytes = kInner * sizeof(float);
inline constexpr std::uint64_t kPieceBytes =
    kPageTokens * kTokenBytes;  // one (block, layer, outer)
inline constexpr std::uint64_t kBlockBytes = kLayers * kOuter * kPieceBytes;
static_assert(kPieceBytes == 4096 && kBlockBytes == 49152);

struct KvView {
  using LayerBases = std::array<std::byte*, kLayers>;

  LayerBases layer_base{};
  std::uint64_t block_stride = 0;  // strides are in bytes
  std::uint64_t outer_stride = 0;
  std::vector<std::uint32_t> blocks;  // page i of the sequence lies in block blocks[i]

  int capacity() const { return static_cast<int>(blocks.size()) * kPageTokens; }

  // The kInner floats of one (position, layer, outer); 0 <= position < capacity().
  float* at(int position, int layer, int outer) const {
    const std::uint64_t block = blocks[static_cast<std::size_t>(position / kPageTokens)];
    const std::uint64_t offset = block * block_stride +
                                 static_cast<std::uint64_t>(outer) * outer_stride +
                                 static_cast<std::uint64_t>(position % kPageTokens) * kTokenBytes;
    return reinterpret_cast<float*>(layer_base[static_cast<std::size_t>(layer)] + offset);
  }

  // All layers of a block side by side, block after block.
  static KvView fully_contiguous(std::byte* base, std::vector<std::uint32_t> blocks) {
    KvView view{{}, kBlockBytes, kPieceBytes, std::move(blocks)};
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      view.layer_base[layer] = base + layer * kOuter * kPieceBytes;
    }
    return view;
  }

  // One area per layer; in it, keys and values of a block side by side.
  static KvView layer_separate_block_first(const LayerBases& bases,
                                           std::vector<std::uint32_t> blocks) {
    return {bases, kOuter * kPieceBytes, kPieceBytes, std::move(blocks)};
  }

  // One area per layer; in it, the keys of all `num_blocks` blocks, then the values of all.
  static KvView layer_separate_block_second(const LayerBases& bases, std::uint64_t num_blocks,
                                            std::vector<std::uint32_t> blocks) {
    return {bases, kPieceBytes, num_blocks * kPieceBytes, std::move(blocks)};
  }
};

}  // namespace wherry::demo
