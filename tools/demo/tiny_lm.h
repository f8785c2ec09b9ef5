// The demo's language model: a byte-level Llama-style transformer of 1.1 million parameters, in
// plain float32 loops.
//
// A loaded TinyLm is immutable and holds no sequence state: all of that is the KV cache, in memory
// that the caller owns and names by a KvView. So any thread may use one model, and a sequence begun
// in one process goes on in another that has the bytes of its cache. The arithmetic runs in one
// fixed order, so that two processes with the same build on the same kind of CPU get bit-identical
// caches, logits and text. Errors are values; nothing is thrown.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/status.h"
#include "tools/demo/kv_view.h"

namespace wherry::demo {

inline constexpr int kVocab = 96;
inline constexpr int kContext = 192;  // positions 0 to 191
inline constexpr float kTemperature = 0.6f;

using Logits = std::array<float, kVocab>;

// One token per newline or printable ASCII character; other bytes are dropped.
std::vector<int> encode(std::string_view text);
// The reverse; numbers that are no token are dropped.
std::string decode(std::span<const int> tokens);

// The most likely token; the lowest of equals.
int greedy(const Logits& logits);
// A token drawn by its probability at `temperature` (> 0). The draw depends on (seed, position)
// alone, with no state in between: whoever continues a text at a position draws as the one who
// began it would have.
int sample(const Logits& logits, float temperature, std::uint64_t seed, int position);

class TinyLm {
 public:
  // Refuses a file that is missing, damaged, or of another model, and names the tensor at fault.
  static Result<TinyLm> load(const std::string& path);

  // Runs one token: writes its keys and values at `position` of every layer, attends over 0 to
  // `position`, and fills the logits of the token after it. The cache must hold all earlier
  // positions. OUT_OF_RANGE, with nothing written: no such token, a position outside the context,
  // or one that the view has no block for.
  Status forward(int token, int position, const KvView& kv, Logits* logits) const;

 private:
  static constexpr int kRotaryPairs = 8;

  struct Layer {
    std::vector<float> attn_norm, wq, wk, wv, wo;
    std::vector<float> ffn_norm, w_gate, w_up, w_down;
  };

  void rotate(float* heads, int count, int position) const;
  void attention(int layer, int position, const KvView& kv, std::span<float> x) const;
  void feed_forward(int layer, std::span<float> x) const;

  std::vector<float> embeddings_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  // [position][pair]
  std::vector<std::array<float, kRotaryPairs>> cos_;
  std::vector<std::array<float, kRotaryPairs>> sin_;
};

}  // namespace wherry::demo
