// The demo's language model against reference values of an independent implementation, and against
// damaged files.

#include "tools/demo/tiny_lm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wherry::demo {
namespace {

using nlohmann::json;

const std::string kModelPath = std::string(WHERRY_DEMO_MODEL_DIR) + "/tiny_lm.safetensors";
const std::string kReferencePath = std::string(WHERRY_DEMO_MODEL_DIR) + "/reference.json";

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

const TinyLm& model() {
  static const Result<TinyLm> kLoaded = TinyLm::load(kModelPath);
  if (!kLoaded.ok()) throw std::runtime_error(kLoaded.status().message());
  return kLoaded.value();
}

const json& reference_cases() {
  static const json kReference = json::parse(read_file(kReferencePath));
  return kReference["cases"];
}

enum class Kind { kFullyContiguous, kBlockFirst, kBlockSecond };
constexpr Kind kAllKinds[] = {Kind::kFullyContiguous, Kind::kBlockFirst, Kind::kBlockSecond};

// Memory of a cache for the whole context, in one of the block layouts. The pages of the sequence
// lie in blocks that are neither first nor in order, so that a wrong stride meets memory of another
// block. Filled with NaN: what is used before it is written spoils the result.
struct Cache {
  static constexpr std::uint64_t kBlocks = 14;
  static constexpr std::uint64_t kLayerBytes = kBlocks * kOuter * kPieceBytes;

  explicit Cache(Kind kind) : memory(kBlocks * kBlockBytes / sizeof(float), NAN) {
    const std::vector<std::uint32_t> blocks = {13, 1, 12, 3, 11, 5, 10, 7, 9, 8, 6, 2};
    auto* const base = reinterpret_cast<std::byte*>(memory.data());
    KvView::LayerBases bases;
    // The areas of the layers run backwards: no layout may lean on their order.
    for (std::size_t i = 0; i < kLayers; ++i) bases[i] = base + (kLayers - 1 - i) * kLayerBytes;
    switch (kind) {
      case Kind::kFullyContiguous:
        view = KvView::fully_contiguous(base, blocks);
        break;
      case Kind::kBlockFirst:
        view = KvView::layer_separate_block_first(bases, blocks);
        break;
      case Kind::kBlockSecond:
        view = KvView::layer_separate_block_second(bases, kBlocks, blocks);
        break;
    }
  }

  std::vector<float> memory;
  KvView view;
};

// Bytes of the first `positions` positions in one fixed order, whatever the layout.
std::vector<float> contents(const KvView& view, int positions) {
  std::vector<float> values;
  for (int position = 0; position < positions; ++position) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int outer = 0; outer < kOuter; ++outer) {
        const float* const piece = view.at(position, layer, outer);
        values.insert(values.end(), piece, piece + kInner);
      }
    }
  }
  return values;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Logits prefill(const std::vector<int>& tokens, const KvView& view) {
  Logits logits{};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Status status = model().forward(tokens[i], static_cast<int>(i), view, &logits);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return logits;
}

std::vector<int> continue_greedily(Logits logits, int position, std::size_t count,
                                   const KvView& view) {
  std::vector<int> tokens;
  while (tokens.size() < count) {
    tokens.push_back(greedy(logits));
    const Status status = model().forward(tokens.back(), position++, view, &logits);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return tokens;
}

TEST(KvView, AddressesFollowTheBlockLayouts) {
  constexpr std::uint64_t kPiece = 4096;
  std::vector<std::byte> memory(12 * 5 * kPiece);
  std::byte* const base = memory.data();
  KvView::LayerBases bases;
  for (std::size_t i = 0; i < kLayers; ++i) bases[i] = base + i * 10 * kPiece;
  const auto offset = [&](const KvView& view, int position, int layer, int outer) {
    return reinterpret_cast<std::byte*>(view.at(position, layer, outer)) - base;
  };
  // Page 1 of the sequence lies in block 4 of 5; position 18 is token 2 of that page.
  const std::vector<std::uint32_t> blocks = {0, 4};
  EXPECT_EQ(offset(KvView::fully_contiguous(base, blocks), 18, 3, 1), 4 * 49152 + 7 * 4096 + 512);
  EXPECT_EQ(offset(KvView::layer_separate_block_first(bases, blocks), 18, 3, 1),
            3 * 40960 + 4 * 8192 + 4096 + 512);
  EXPECT_EQ(offset(KvView::layer_separate_block_second(bases, 5, blocks), 18, 3, 1),
            3 * 40960 + 5 * 4096 + 4 * 4096 + 512);
  EXPECT_EQ(KvView::fully_contiguous(base, blocks).capacity(), 32);
}

class TinyLmReference : public testing::TestWithParam<Kind> {};

TEST_P(TinyLmReference, EveryPromptReproducesTheTokensAndTheSums) {
  ASSERT_EQ(reference_cases().size(), 10u);
  for (const json& item : reference_cases()) {
    SCOPED_TRACE(item["prompt"].get<std::string>());
    const double tolerance = item["tolerance"].get<double>();
    const std::vector<int> prompt = encode(item["prompt"].get<std::string>());
    ASSERT_EQ(prompt, item["prompt_tokens"].get<std::vector<int>>());

    const Cache cache(GetParam());
    const Logits logits = prefill(prompt, cache.view);
    const auto first_logits = item["logits_after_prompt_first_8"].get<std::vector<float>>();
    for (std::size_t i = 0; i < first_logits.size(); ++i) {
      EXPECT_NEAR(logits[i], first_logits[i], tolerance) << "logit " << i;
    }
    double k_abs_sum = 0.0;
    for (int layer = 0; layer < kLayers; ++layer) {
      double sums[kOuter] = {0.0, 0.0};
      for (int position = 0; position < static_cast<int>(prompt.size()); ++position) {
        for (int i = 0; i < kInner; ++i) {
          const double k = cache.view.at(position, layer, 0)[i];
          sums[0] += k;
          sums[1] += cache.view.at(position, layer, 1)[i];
          k_abs_sum += std::abs(k);
        }
      }
      const auto index = static_cast<std::size_t>(layer);
      EXPECT_NEAR(sums[0], item["k_sum_per_layer"][index].get<double>(), tolerance) << layer;
      EXPECT_NEAR(sums[1], item["v_sum_per_layer"][index].get<double>(), tolerance) << layer;
    }
    const double k_count = static_cast<double>(prompt.size()) * kLayers * kInner;
    EXPECT_NEAR(k_abs_sum / k_count, item["k_abs_mean"].get<double>(), tolerance);

    const auto wanted = item["continuation_tokens"].get<std::vector<int>>();
    const std::vector<int> tokens =
        continue_greedily(logits, static_cast<int>(prompt.size()), wanted.size(), cache.view);
    EXPECT_EQ(tokens, wanted);
    EXPECT_EQ(decode(tokens), item["continuation"].get<std::string>());
  }
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  const char* const names[] = {"FullyContiguous", "BlockFirst", "BlockSecond"};
  return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(AllLayouts, TinyLmReference, testing::ValuesIn(kAllKinds), kind_name);

TEST(TinyLm, ACacheMovedToAnotherLayoutContinuesTheTextWithTheSameBytes) {
  const std::vector<int> prompt = encode("A ring buffer is ");
  const int length = static_cast<int>(prompt.size());
  const Cache alone(Kind::kFullyContiguous);
  const Logits logits = prefill(prompt, alone.view);
  std::vector<std::pair<Kind, Cache>> others;
  for (const Kind kind : {Kind::kBlockFirst, Kind::kBlockSecond}) {
    others.emplace_back(kind, Cache(kind));
    const Cache& moved = others.back().second;
    for (int position = 0; position < length; ++position) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int outer = 0; outer < kOuter; ++outer) {
          std::memcpy(moved.view.at(position, layer, outer), alone.view.at(position, layer, outer),
                      kTokenBytes);
        }
      }
    }
  }
  const std::vector<int> text = continue_greedily(logits, length, 40, alone.view);
  for (const auto& [kind, moved] : others) {
    // As the demo's decoder does: it runs the last token of the prompt again.
    Logits again{};
    ASSERT_TRUE(model().forward(prompt.back(), length - 1, moved.view, &again).ok());
    EXPECT_EQ(again, logits);
    EXPECT_EQ(continue_greedily(again, length, 40, moved.view), text);
    EXPECT_TRUE(same_bytes(contents(moved.view, length + 40), contents(alone.view, length + 40)))
        << "layout " << static_cast<int>(kind);
  }
}

TEST(TinyLm, APieceOfATokenIsNeverWrittenOutsideTheBlocksOfTheView) {
  for (const Kind kind : kAllKinds) {
    Cache cache(kind);
    prefill(encode("one page and a bit"), cache.view);
    std::size_t written = 0;
    for (const float value : cache.memory) written += std::isnan(value) ? 0 : 1;
    EXPECT_EQ(written, 18u * kLayers * kOuter * kInner);
  }
}

TEST(TinyLm, ARefusedTokenOrPositionNamesTheLimitAndWritesNothing) {
  Cache cache(Kind::kFullyContiguous);
  const auto refused = [&](int token, int position, const std::string& text) {
    Logits logits{};
    const Status status = model().forward(token, position, cache.view, &logits);
    EXPECT_EQ(status.code(), Code::kOutOfRange);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  refused(-1, 0, "0 to 95, got -1");
  refused(96, 0, "0 to 95, got 96");
  refused(1, -1, "0 to 191, got -1");
  refused(1, 192, "0 to 191, got 192");
  cache.view.blocks.push_back(0);
  refused(1, 192, "0 to 191, got 192");
  cache.view.blocks.resize(2);
  refused(1, 32, "0 to 31, got 32");
  for (const float value : cache.memory) ASSERT_TRUE(std::isnan(value));
}

TEST(TinyLm, TheLastPositionOfTheContextIsUsable) {
  const Cache cache(Kind::kBlockSecond);
  const Logits logits = prefill(std::vector<int>(kContext, 66), cache.view);
  for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
}

TEST(Tokens, OtherBytesThanNewlineAndPrintableAsciiAreDropped) {
  EXPECT_EQ(encode("\n ~"), (std::vector<int>{0, 1, 95}));
  EXPECT_EQ(decode(encode("a\tb\x7f\r\xc3\xa9"
                          "c\nd")),
            "abc\nd");
  // Checked before decode(), which drops too.
  EXPECT_EQ(encode(std::string_view("\0\t\r\x1f\x7f\x80\xff", 7)), std::vector<int>{});
  EXPECT_EQ(decode(std::vector<int>{-1, 96, 34, 1 << 30}), "A");
}

TEST(Sampling, IsReproducibleBySeedAndDiffersBetweenSeeds) {
  const auto text = [](std::uint64_t seed) {
    const Cache cache(Kind::kBlockFirst);
    Logits logits = prefill(encode("hacker: n. "), cache.view);
    std::vector<int> tokens;
    for (int position = 11; position < 60; ++position) {
      tokens.push_back(sample(logits, kTemperature, seed, position));
      EXPECT_TRUE(model().forward(tokens.back(), position, cache.view, &logits).ok());
    }
    return decode(tokens);
  };
  EXPECT_EQ(text(7), text(7));
  EXPECT_NE(text(7), text(8));
}

TEST(Sampling, FollowsTheProbabilitiesAtTheTemperature) {
  Logits logits;
  logits.fill(-100.0f);
  logits[3] = 0.6f * std::log(3.0f);  // at temperature 0.6 three times as likely as token 90
  logits[90] = 0.0f;
  int threes = 0;
  for (int position = 0; position < 4000; ++position) {
    const int token = sample(logits, kTemperature, 1, position);
    ASSERT_TRUE(token == 3 || token == 90) << token;
    threes += token == 3 ? 1 : 0;
  }
  // 3000 wanted, standard deviation 27.
  EXPECT_NEAR(threes, 3000, 140);
}

TEST(Sampling, DrawsTheSameTokensOnEveryHost) {
  Logits level;
  level.fill(0.0f);
  std::vector<int> drawn;
  for (int position = 0; position < 8; ++position) {
    drawn.push_back(sample(level, kTemperature, 42, position));
  }
  EXPECT_EQ(drawn, (std::vector<int>{57, 15, 15, 4, 94, 22, 26, 14}));
}

}  // namespace
}  // namespace wherry::demo
