#include "tools/demo/story.h"

namespace wherry::demo {

Status prefill(const TinyLm& model, const std::vector<int>& tokens, const KvView& kv) {
  Logits logits;
  for (std::size_t position = 0; position < tokens.size(); ++position) {
    if (Status status = model.forward(tokens[position], static_cast<int>(position), kv, &logits);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

Result<std::vector<int>> continue_text(const TinyLm& model, int last_token, int position, int end,
                                       const KvView& kv) {
  std::vector<int> text;
  Logits logits;
  for (int token = last_token; position < end; ++position) {
    if (Status status = model.forward(token, position, kv, &logits); !status.ok()) return status;
    token = sample(logits, kTemperature, kSeed, position + 1);
    text.push_back(token);
  }
  return text;
}

}  // namespace wherry::demo
