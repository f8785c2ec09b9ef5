// The three parts of the demo, each run as a process of its own, and what they say to each other.
//
//   prefill  computes the KV cache of the prompt, publishes it, and tells decode where it is
//   decode   pulls the cache into memory of its own through the engine and writes the text on
//   check    pulls decode's cache, computes everything again alone, and compares
// decode never sees the prompt: it gets the last token, its position and the block numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clientlib/client.h"
#include "shm/status.h"
#include "tools/demo/story.h"

namespace wherry::demo {

inline constexpr uint64_t kPatienceMs = 60'000;  // how long a part waits for another one

struct DemoOptions {
  std::string engine = "default";
  std::string run_dir;   // of the engine; empty = by the rule
  std::string model;     // path of the weights
  std::string prompt;    // prefill and check
  int tokens = 96;       // of the continuation
  bool corrupt = false;  // decode: flip a byte of what was pulled
};

Status run_prefill(const DemoOptions& options);
Status run_decode(const DemoOptions& options);
Status run_check(const DemoOptions& options);

// What goes from one part to the next as a notification.
struct HandOver {
  int position = 0;  // of the last token
  int token = 0;
  std::vector<uint32_t> blocks;  // page i of the sequence lies in block blocks[i]
  std::string text;              // decode to check: what it wrote

  std::string encode() const;
  static Result<HandOver> decode(const std::string& bytes);
};

// What every part has: the model, a session, and memory for a whole context as a layout of some
// kind.
struct Part {
  TinyLm model;
  Client client;
  Geometry geometry;
  Region region;
  LayoutHandle layout;
};
Result<Part> open_part(const DemoOptions& options, const std::string& instance, LayoutKind kind);

// The prompt's tokens; refuses one that is empty or leaves no room for a continuation.
Result<std::vector<int>> prompt_tokens(const std::string& prompt);

// Sends a notification, waiting for its receiver to attach first.
Status tell(Client& client, const std::string& instance, const std::string& bytes);
// The next notification from that instance.
Result<std::string> hear(Client& client, const std::string& instance);

// Waits for a transfer and turns any other outcome than OK into a Status.
Result<Completion> finish(Result<TransferCompleteNotification> transfer);

}  // namespace wherry::demo
