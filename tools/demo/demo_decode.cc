// Decode: pulls the cache into a layer-separate layout of its own and writes the text on.
#include <algorithm>
#include <cstdio>

#include "shm/run_root.h"
#include "shm/stats_reader.h"
#include "tools/demo/demo.h"

namespace wherry::demo {
namespace {

// Runs that the engine has posted so far, from its stats file.
uint64_t runs_posted(const DemoOptions& options) {
  const std::string dir = options.run_dir.empty() ? shm::run_dir(options.engine) : options.run_dir;
  Result<shm::StatsReader> reader = shm::StatsReader::open(dir + "/stats");
  uint64_t runs = 0;
  if (!reader.ok()) return 0;
  for (const shm::PollerStats* poller : reader->pollers()) runs += poller->runs.get();
  return runs;
}

void report(const Completion& done, size_t blocks, uint64_t runs) {
  const double seconds = static_cast<double>(done.end_ns - done.start_ns) * 1e-9;
  std::printf("decode: pulled %zu blocks in %llu runs, %llu bytes, %.1f us, %.2f GB/s, over %s\n",
              blocks, static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(done.bytes), seconds * 1e6,
              static_cast<double>(done.bytes) * 1e-9 / seconds,
              transport_kind_name(done.transport));
}

}  // namespace

Status run_decode(const DemoOptions& options) {
  Result<Part> part = open_part(options, "decode", LayoutKind::kLayerSeparateBlockSecond);
  if (!part.ok()) return part.status();
  const Geometry& geometry = part->geometry;

  Result<std::string> message = hear(part->client, "prefill");
  if (!message.ok()) return message.status();
  Result<HandOver> given = HandOver::decode(*message);
  if (!given.ok()) return given.status();
  Result<FoundLayout> found =
      part->client.find_layout("prefill", 0, Tier::kG2, deadline_in_ms(kPatienceMs));
  if (!found.ok()) return found.status();

  const int end = std::min(given->position + options.tokens, kContext);
  HandOver mine = *given;
  mine.blocks.clear();
  for (uint32_t page = 0; page < blocks_for(end); ++page) {
    mine.blocks.push_back((page * 5 + 2) % kMaxBlocks);  // other numbers than prefill's
  }
  const size_t pulled = given->blocks.size();
  const uint64_t runs_before = runs_posted(options);
  Result<Completion> done = finish(
      part->client.execute_local_transfer(found->handle, part->layout, given->blocks,
                                          std::span<const BlockId>(mine.blocks.data(), pulled)));
  if (!done.ok()) return done.status();
  report(*done, pulled, runs_posted(options) - runs_before);
  if (Status status = tell(part->client, "prefill", "pulled its blocks"); !status.ok())
    return status;

  KvView::LayerBases bases;
  for (size_t layer = 0; layer < kLayers; ++layer)
    bases[layer] = part->region.data + layer * geometry.part_bytes();
  const KvView view = KvView::layer_separate_block_second(bases, kMaxBlocks, mine.blocks);
  Result<std::vector<int>> tokens =
      continue_text(part->model, given->token, given->position, end, view);
  if (!tokens.ok()) return tokens.status();
  const std::string text = wherry::demo::decode(*tokens);
  std::printf("decode: knowing only token %d at position %d, wrote on:\n\n%s\n\n", given->token,
              given->position, text.c_str());

  if (options.corrupt) {
    // Somewhere in the keys of the first pulled block's first token, in layer 3.
    const uint64_t at = 3 * geometry.part_bytes() + offset_in_part(geometry, mine.blocks[0], 3, 0);
    part->region.data[at + 123] ^= std::byte{0x40};
    std::printf("decode: flipped a byte of block %u, as asked\n", mine.blocks[0]);
  }

  mine.position = end - 1;
  mine.token = tokens->empty() ? given->token : tokens->back();
  mine.text = text;
  if (Status status = part->client.publish(part->layout, Tier::kG2, Rights::kRead, {"check"});
      !status.ok())
    return status;
  if (Status status = tell(part->client, "check", mine.encode()); !status.ok()) return status;
  Result<std::string> answer = hear(part->client, "check");
  return answer.ok() ? Status() : answer.status();
}

}  // namespace wherry::demo
