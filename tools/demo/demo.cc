#include "tools/demo/demo.h"

#include <algorithm>
#include <sstream>
#include <thread>

namespace wherry::demo {
namespace {

// The geometry of the demo's cache as a layout of this kind.
Geometry cache_geometry(LayoutKind kind) {
  Geometry geometry;
  geometry.kind = kind;
  geometry.inner_order = InnerOrder::kNhd;
  geometry.dtype = DType::kFloat32;
  geometry.num_blocks = kMaxBlocks;
  geometry.num_layers = kLayers;
  geometry.outer_dim = kOuter;
  geometry.page_size = kPageTokens;
  geometry.inner_dim = kInner;
  return geometry;
}

}  // namespace

std::string HandOver::encode() const {
  std::ostringstream out;
  out << position << ' ' << token << ' ' << blocks.size();
  for (uint32_t block : blocks) out << ' ' << block;
  out << ' ' << text;
  return out.str();
}

Result<HandOver> HandOver::decode(const std::string& bytes) {
  std::istringstream in(bytes);
  HandOver result;
  size_t count = 0;
  in >> result.position >> result.token >> count;
  for (uint32_t block = 0; in && result.blocks.size() < std::min<size_t>(count, kMaxBlocks);) {
    if (in >> block) result.blocks.push_back(block);
  }
  in.get();
  if (!in || result.blocks.size() != count || blocks_for(result.position + 1) > count) {
    return Status(Code::kInvalidArgument, "hand-over: wanted position, token and blocks, got '" +
                                              bytes + "'; are all parts of one build?");
  }
  std::getline(in, result.text, '\0');
  return result;
}

Result<Part> open_part(const DemoOptions& options, const std::string& instance, LayoutKind kind) {
  Result<TinyLm> model = TinyLm::load(options.model);
  if (!model.ok()) return model.status();
  AttachOptions attach;
  attach.instance = instance;
  attach.engine = options.engine;
  attach.run_dir = options.run_dir;
  attach.wait_ms = kPatienceMs;
  Result<Client> client = Client::attach(attach);
  if (!client.ok()) return client.status();

  const Geometry geometry = cache_geometry(kind);
  Result<Region> region = client->create_region(geometry.part_bytes() * geometry.part_count());
  if (!region.ok()) return region.status();
  Result<LayoutHandle> layout = client->register_layout(
      kind == LayoutKind::kFullyContiguous ? fully_contiguous(region->handle, 0, geometry)
                                           : layer_separate(region->handle, 0, geometry, false));
  if (!layout.ok()) return layout.status();
  return Part{std::move(*model), std::move(*client), geometry, *region, *layout};
}

Result<std::vector<int>> prompt_tokens(const std::string& prompt) {
  std::vector<int> tokens = encode(prompt);
  constexpr int kLongest = kContext - kPageTokens;
  if (tokens.empty() || static_cast<int>(tokens.size()) > kLongest) {
    return Status(Code::kInvalidArgument, "prompt: wanted 1 to " + std::to_string(kLongest) +
                                              " printable ASCII characters, got " +
                                              std::to_string(tokens.size()) +
                                              "; give a text of that length");
  }
  return tokens;
}

Status tell(Client& client, const std::string& instance, const std::string& bytes) {
  const uint64_t deadline = deadline_in_ms(kPatienceMs);
  for (;;) {
    Result<TransferCompleteNotification> sent = client.notify(instance, 0, bytes);
    if (sent.ok() || sent.code() != Code::kUnknownInstance || monotonic_ns() > deadline) {
      Result<Completion> done = finish(std::move(sent));
      return done.ok() ? Status() : done.status().with_context("telling " + instance);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is still starting
  }
}

Result<std::string> hear(Client& client, const std::string& instance) {
  Result<std::vector<Notification>> heard = client.wait_notifications(deadline_in_ms(kPatienceMs));
  if (!heard.ok()) return heard.status();
  for (const Notification& one : *heard) {
    if (one.instance == instance) return one.bytes;
  }
  return Status(Code::kTimedOut, "waiting for " + instance +
                                     ": wanted a notification, got none; see what it printed");
}

Result<Completion> finish(Result<TransferCompleteNotification> transfer) {
  if (!transfer.ok()) return transfer.status();
  Result<Completion> done = transfer->wait();
  if (!done.ok()) return done.status();
  if (!done->ok()) return Status(done->status, done->to_string());
  return done;
}

}  // namespace wherry::demo
