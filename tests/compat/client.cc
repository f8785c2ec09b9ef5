// One client of a hand-over, built from this version's library: the engine and the other client may
// be of other versions.
//   compat_client prefill|decode RUN_DIR
// Exit code: 0 done, 3 refused for its version (standard error says why), 1 anything else.
#include "clientlib/client.h"

#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/pattern.h"

namespace wherry::test {
namespace {

constexpr uint64_t kSeed = 29;
constexpr uint64_t kHangNs = 60'000'000'000;
constexpr std::string_view kDone = "pulled and right";

Geometry geometry(LayoutKind kind) {
  Geometry g;
  g.kind = kind;
  g.num_blocks = 12;
  g.num_layers = 3;
  g.outer_dim = 2;
  g.page_size = 16;
  g.inner_dim = 96;
  return g;
}

Status wrong(const std::string& what) { return {Code::kInternal, what}; }

std::vector<BlockId> all_blocks(const Geometry& g) {
  std::vector<BlockId> ids(g.num_blocks);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Result<Client> attach(const char* name, const char* run_dir) {
  AttachOptions options;
  options.instance = name;
  options.run_dir = run_dir;
  options.wait_ms = kHangNs / 1'000'000;
  options.reattach = false;
  return Client::attach(options);
}

// Publishes a cache and waits until somebody has it.
Status prefill(const char* run_dir) {
  Result<Client> client = attach("prefill", run_dir);
  if (!client.ok()) return client.status();
  const Geometry g = geometry(LayoutKind::kFullyContiguous);
  const Result<Region> region = client->create_region(g.num_blocks * g.block_bytes());
  if (!region.ok()) return region.status();
  for (uint32_t block = 0; block < g.num_blocks; ++block) {
    for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
      for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
        fill(region->data + offset_in_part(g, block, layer, outer), g.region_bytes(), block, layer,
             outer, kSeed);
      }
    }
  }
  const Result<LayoutHandle> layout =
      client->register_layout(fully_contiguous(region->handle, 0, g));
  if (!layout.ok()) return layout.status();
  if (Status s = client->publish(*layout, Tier::kG1); !s.ok()) return s;
  const Result<std::vector<Notification>> list =
      client->wait_notifications(monotonic_ns() + kHangNs);
  if (!list.ok()) return list.status();
  if (list->size() != 1 || list->front().bytes != kDone || list->front().instance != "decode") {
    return wrong("wanted one notification of decode, got something else");
  }
  if (Status s = client->unpublish(*layout); !s.ok()) return s;
  if (Status s = client->free_layout(*layout); !s.ok()) return s;
  return client->free_region(region->handle);
}

// Pulls the cache, last block first, into layer-separate memory and says so.
Status decode(const char* run_dir) {
  Result<Client> client = attach("decode", run_dir);
  if (!client.ok()) return client.status();
  const Geometry g = geometry(LayoutKind::kLayerSeparateBlockSecond);
  const Result<Region> region = client->create_region(g.num_blocks * g.block_bytes());
  if (!region.ok()) return region.status();
  std::vector<LayoutPart> parts;
  const uint64_t part_bytes = g.num_blocks * g.layer_bytes();
  for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
    parts.push_back({region->handle, layer * part_bytes});
  }
  const Result<LayoutHandle> mine = client->register_layout(layer_separate(parts, g, false));
  if (!mine.ok()) return mine.status();
  const Result<FoundLayout> theirs =
      client->find_layout("prefill", 0, Tier::kG1, monotonic_ns() + kHangNs);
  if (!theirs.ok()) return theirs.status();
  const std::vector<BlockId> from = all_blocks(g);
  const std::vector<BlockId> to(from.rbegin(), from.rend());
  Result<TransferCompleteNotification> request =
      client->execute_local_transfer(theirs->handle, *mine, from, to);
  if (!request.ok()) return request.status();
  const Result<Completion> completion = request->wait(monotonic_ns() + kHangNs);
  if (!completion.ok()) return completion.status();
  if (!completion->ok()) return {completion->status, completion->to_string()};
  for (const BlockId block : from) {
    for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
      for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
        const std::byte* at = region->data + parts[part_of(g, to[block], layer)].offset +
                              offset_in_part(g, to[block], layer, outer);
        if (first_difference(at, g.region_bytes(), block, layer, outer, kSeed) !=
            g.region_bytes()) {
          return wrong("wanted block " + std::to_string(block) + " as it was sent, got others");
        }
      }
    }
  }
  request = client->notify("prefill", 0, kDone);
  if (!request.ok()) return request.status();
  const Result<Completion> told = request->wait(monotonic_ns() + kHangNs);
  return told.ok() ? Status{told->status, told->to_string()} : told.status();
}

}  // namespace
}  // namespace wherry::test

int main(int argc, char** argv) {
  using namespace wherry;
  const std::string_view role = argc == 3 ? argv[1] : "";
  if (role != "prefill" && role != "decode") {
    std::fprintf(stderr, "usage: compat_client prefill|decode RUN_DIR\n");
    return 2;
  }
  const Status status = role == "prefill" ? test::prefill(argv[2]) : test::decode(argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "compat_client %s: %s\n", argv[1], status.to_string().c_str());
  return status.code() == Code::kVersionMismatch ? 3 : 1;
}
