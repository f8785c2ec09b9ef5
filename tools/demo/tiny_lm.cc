#include "tools/demo/tiny_lm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/demo/safetensors.h"

namespace wherry::demo {
namespace {

constexpr int kDim = 128;
constexpr int kHeads = 8;
constexpr int kKvHeads = 4;
constexpr int kHeadDim = 16;
constexpr int kFfn = 344;
constexpr double kTheta = 10000.0;
constexpr float kEpsilon = 1e-5f;
static_assert(kInner == kKvHeads * kHeadDim && kDim == kHeads * kHeadDim);

// Reads tensor after tensor and keeps the first error.
struct Reader {
  const Safetensors& file;
  Status status;

  std::vector<float> operator()(const std::string& name, const std::vector<std::uint64_t>& shape) {
    if (!status.ok()) return {};
    Result<std::vector<float>> values = file.read_f16(name, shape);
    if (values.ok()) return std::move(values.value());
    status = values.status();
    return {};
  }
};

// out = matrix · in, for a row-major matrix [out, in]. One running sum per row: the order of
// additions is fixed.
void multiply(const std::vector<float>& matrix, std::span<const float> in, std::span<float> out) {
  const float* weight = matrix.data();
  for (float& result : out) {
    float sum = 0.0f;
    for (const float value : in) sum += *weight++ * value;
    result = sum;
  }
}

std::array<float, kDim> normalized(std::span<const float> x, const std::vector<float>& weight) {
  float squares = 0.0f;
  for (const float value : x) squares += value * value;
  const float scale = 1.0f / std::sqrt(squares / kDim + kEpsilon);
  std::array<float, kDim> result;
  for (std::size_t i = 0; i < kDim; ++i) result[i] = x[i] * scale * weight[i];
  return result;
}

void add_to(std::span<float> x, std::span<const float> delta) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
}

float dot_of_heads(const float* a, const float* b) {
  float sum = 0.0f;
  for (int i = 0; i < kHeadDim; ++i) sum += a[i] * b[i];
  return sum;
}

// A number in [0, 1) that looks random: the splitmix64 generator of Steele, Lea and Flood, jumped
// to `position`.
double unit_random(std::uint64_t seed, int position) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  };
  const std::uint64_t steps = static_cast<std::uint64_t>(position) + 1;
  // The seed is mixed first: neighbouring seeds would otherwise give shifted copies of one stream.
  return static_cast<double>(mix(mix(seed) + steps * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

}  // namespace

std::vector<int> encode(std::string_view text) {
  std::vector<int> tokens;
  for (const char c : text) {
    if (c == '\n') tokens.push_back(0);
    if (c >= ' ' && c <= '~') tokens.push_back(c - 31);
  }
  return tokens;
}

std::string decode(std::span<const int> tokens) {
  std::string text;
  for (const int token : tokens) {
    if (token == 0) text += '\n';
    if (token > 0 && token < kVocab) text += static_cast<char>(token + 31);
  }
  return text;
}

int greedy(const Logits& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int sample(const Logits& logits, float temperature, std::uint64_t seed, int position) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::array<double, kVocab> cumulative;
  double sum = 0.0;
  for (std::size_t i = 0; i < kVocab; ++i) {
    sum += std::exp(static_cast<double>((logits[i] - largest) / temperature));
    cumulative[i] = sum;
  }
  const double drawn = unit_random(seed, position) * sum;
  for (std::size_t i = 0; i < kVocab - 1; ++i) {
    if (drawn < cumulative[i]) return static_cast<int>(i);
  }
  return kVocab - 1;
}

Result<TinyLm> TinyLm::load(const std::string& path) {
  const Result<Safetensors> opened = Safetensors::open(path);
  if (!opened.ok()) return opened.status();
  const Safetensors& file = opened.value();
  // The shapes check the other sizes; these three could differ with every shape the same.
  const std::pair<const char*, const char*> arithmetic[] = {
      {"head_dim", "16"}, {"rope_theta", "10000"}, {"norm_eps", "1e-5"}};
  for (const auto& [key, wanted] : arithmetic) {
    if (Status status = file.expect_metadata(key, wanted); !status.ok()) return status;
  }

  TinyLm model;
  Reader read{file, {}};
  model.embeddings_ = read("tok_embeddings.weight", {kVocab, kDim});
  for (int i = 0; i < kLayers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    Layer layer;
    layer.attn_norm = read(prefix + "attn_norm.weight", {kDim});
    layer.wq = read(prefix + "wq.weight", {kDim, kDim});
    layer.wk = read(prefix + "wk.weight", {kInner, kDim});
    layer.wv = read(prefix + "wv.weight", {kInner, kDim});
    layer.wo = read(prefix + "wo.weight", {kDim, kDim});
    layer.ffn_norm = read(prefix + "ffn_norm.weight", {kDim});
    layer.w_gate = read(prefix + "w_gate.weight", {kFfn, kDim});
    layer.w_up = read(prefix + "w_up.weight", {kFfn, kDim});
    layer.w_down = read(prefix + "w_down.weight", {kDim, kFfn});
    model.layers_.push_back(std::move(layer));
  }
  model.norm_ = read("norm.weight", {kDim});
  if (!read.status.ok()) return read.status;

  static_assert(kRotaryPairs == kHeadDim / 2);
  model.cos_.resize(kContext);
  model.sin_.resize(kContext);
  for (std::size_t position = 0; position < kContext; ++position) {
    for (std::size_t pair = 0; pair < kRotaryPairs; ++pair) {
      const double angle = static_cast<double>(position) *
                           std::pow(kTheta, -2.0 * static_cast<double>(pair) / kHeadDim);
      model.cos_[position][pair] = static_cast<float>(std::cos(angle));
      model.sin_[position][pair] = static_cast<float>(std::sin(angle));
    }
  }
  return model;
}

Status TinyLm::forward(int token, int position, const KvView& kv, Logits* logits) const {
  if (token < 0 || token >= kVocab) {
    return {Code::kOutOfRange, "token: wanted 0 to " + std::to_string(kVocab - 1) + ", got " +
                                   std::to_string(token) + "; take tokens from encode()"};
  }
  const int limit = std::min(kContext, kv.capacity());
  if (position < 0 || position >= limit) {
    return {Code::kOutOfRange,
            "position: wanted 0 to " + std::to_string(limit - 1) + ", got " +
                std::to_string(position) + "; shorten the prompt or the continuation (context " +
                std::to_string(kContext) + ", cache " + std::to_string(kv.capacity()) + ")"};
  }
  std::array<float, kDim> x;
  std::copy_n(embeddings_.data() + token * kDim, kDim, x.data());
  for (int layer = 0; layer < kLayers; ++layer) {
    attention(layer, position, kv, x);
    feed_forward(layer, x);
  }
  multiply(embeddings_, normalized(x, norm_), *logits);
  return {};
}

void TinyLm::rotate(float* heads, int count, int position) const {
  const auto& cos = cos_[static_cast<std::size_t>(position)];
  const auto& sin = sin_[static_cast<std::size_t>(position)];
  for (float* head = heads; head != heads + count * kHeadDim; head += kHeadDim) {
    for (std::size_t pair = 0; pair < kRotaryPairs; ++pair) {
      const float u = head[2 * pair];
      const float w = head[2 * pair + 1];
      head[2 * pair] = u * cos[pair] - w * sin[pair];
      head[2 * pair + 1] = u * sin[pair] + w * cos[pair];
    }
  }
}

void TinyLm::attention(int layer, int position, const KvView& kv, std::span<float> x) const {
  const Layer& weights = layers_[static_cast<std::size_t>(layer)];
  const std::array<float, kDim> h = normalized(x, weights.attn_norm);
  std::array<float, kDim> q;
  float* const k = kv.at(position, layer, 0);
  multiply(weights.wq, h, q);
  multiply(weights.wk, h, {k, kInner});
  multiply(weights.wv, h, {kv.at(position, layer, 1), kInner});
  rotate(q.data(), kHeads, position);
  rotate(k, kKvHeads, position);

  std::array<float, kDim> heads{};
  std::array<float, kContext> scores;
  for (int head = 0; head < kHeads; ++head) {
    const int kv_offset = head / (kHeads / kKvHeads) * kHeadDim;
    const std::size_t at = static_cast<std::size_t>(head) * kHeadDim;
    const std::span<float> seen(scores.data(), static_cast<std::size_t>(position) + 1);
    for (int past = 0; past <= position; ++past) {
      scores[static_cast<std::size_t>(past)] =
          dot_of_heads(&q[at], kv.at(past, layer, 0) + kv_offset) / 4.0f;  // sqrt(kHeadDim)
    }
    const float largest = *std::max_element(seen.begin(), seen.end());
    float sum = 0.0f;
    for (float& score : seen) sum += score = std::exp(score - largest);
    float* const out = &heads[at];
    for (int past = 0; past <= position; ++past) {
      const float* const v = kv.at(past, layer, 1) + kv_offset;
      const float share = scores[static_cast<std::size_t>(past)] / sum;
      for (int i = 0; i < kHeadDim; ++i) out[i] += share * v[i];
    }
  }
  std::array<float, kDim> delta;
  multiply(weights.wo, heads, delta);
  add_to(x, delta);
}

void TinyLm::feed_forward(int layer, std::span<float> x) const {
  const Layer& weights = layers_[static_cast<std::size_t>(layer)];
  const std::array<float, kDim> h = normalized(x, weights.ffn_norm);
  std::array<float, kFfn> gate;
  std::array<float, kFfn> up;
  multiply(weights.w_gate, h, gate);
  multiply(weights.w_up, h, up);
  for (std::size_t i = 0; i < kFfn; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  std::array<float, kDim> delta;
  multiply(weights.w_down, gate, delta);
  add_to(x, delta);
}

}  // namespace wherry::demo
