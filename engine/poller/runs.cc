#include "engine/poller/runs.h"

#include <algorithm>
#include <cstring>

namespace wherry::engine {
namespace {

using PartAxis = SideStrides::PartAxis;

shm::BlockPair read_pair(const PairChunk& chunk, uint32_t index) {
  shm::BlockPair pair;
  std::memcpy(&pair, chunk.payload.data() + size_t{index} * sizeof(pair), sizeof(pair));
  return pair;
}

// Takes the pair at the cursor and steps over it.
shm::BlockPair take_pair(Request& request, ChunkPool& chunks) {
  RunCursor& c = request.cursor;
  const uint32_t index = c.next_pair++;
  if (index == 0) return request.first_pair;
  const uint32_t in_chunk = (index - 1) % shm::kEntriesPerSlot;
  const shm::BlockPair pair = read_pair(chunks[c.chunk], in_chunk);
  if (in_chunk == shm::kEntriesPerSlot - 1) c.chunk = chunks[c.chunk].next;
  return pair;
}

shm::BlockPair peek_pair(const Request& request, ChunkPool& chunks) {
  const uint32_t index = request.cursor.next_pair;
  if (index == 0) return request.first_pair;
  return read_pair(chunks[request.cursor.chunk], (index - 1) % shm::kEntriesPerSlot);
}

void load_group(Request& request, ChunkPool& chunks, uint64_t run) {
  RunCursor& c = request.cursor;
  c.group_first = c.next_pair;
  c.group = take_pair(request, chunks);
  c.group_count = 1;
  c.layer = request.layer_first;
  c.outer = 0;
  c.done = 0;
  if (!request.plan.merges(run)) return;
  while (c.next_pair < request.pair_count) {
    const shm::BlockPair pair = peek_pair(request, chunks);
    if (pair.source != c.group.source + c.group_count ||
        pair.destination != c.group.destination + c.group_count)
      break;
    take_pair(request, chunks);
    ++c.group_count;
  }
}

// Mapping and offset of (block, layer, outer) on one side.
struct Place {
  const Mapping* mapping;
  uint64_t offset;
};

Place place_of(const View& view, const SideStrides& side, uint32_t block, uint32_t layer,
               uint32_t outer) {
  const uint32_t part = side.part_axis == PartAxis::kNone    ? 0
                        : side.part_axis == PartAxis::kLayer ? layer
                                                             : block;
  const Part& where = view.parts[part];
  return {where.mapping,
          where.offset + block * side.block + layer * side.layer + outer * side.outer};
}

// Steps the cursor behind a run that was handed out to its end.
void finish_run(Request& request) {
  RunCursor& c = request.cursor;
  c.done = 0;
  const Plan& plan = request.plan;
  if (plan.unit == Plan::Unit::kRegion && ++c.outer < plan.outer_dim) return;
  c.outer = 0;
  if ((plan.unit == Plan::Unit::kRegion || plan.unit == Plan::Unit::kLayer) &&
      ++c.layer < request.layer_end)
    return;
  c.group_count = 0;
}

Run next_block_run(Request& request, ChunkPool& chunks, uint64_t max_bytes) {
  RunCursor& c = request.cursor;
  const Plan& plan = request.plan;
  const uint64_t unit = plan.run_bytes(request.layer_end - request.layer_first);
  if (c.group_count == 0) load_group(request, chunks, unit);
  const Place source = place_of(*request.source, plan.source, c.group.source, c.layer, c.outer);
  const Place destination =
      place_of(*request.destination, plan.destination, c.group.destination, c.layer, c.outer);
  const bool entry = plan.unit == Plan::Unit::kEntry;
  const uint64_t total =
      entry ? request.source->parts[c.group.source].length : unit * c.group_count;
  const uint64_t bytes = std::min(total - c.done, max_bytes);

  Run run;
  run.source = source.mapping;
  run.destination = destination.mapping;
  run.source_offset = source.offset + c.done;
  run.destination_offset = destination.offset + c.done;
  run.length = bytes;
  // Which pairs of the group this piece touches, so that a failure names just these. A division is
  // dear where it is done for each pair.
  const bool one_pair = entry || c.group_count == 1;
  const uint64_t first = one_pair ? 0 : c.done / unit;
  const uint64_t last = one_pair ? 0 : (c.done + bytes - 1) / unit;
  run.first_pair = c.group_first + static_cast<uint32_t>(first);
  run.pair_count = static_cast<uint32_t>(last - first + 1);
  c.done += bytes;
  if (c.done == total) finish_run(request);
  return run;
}

Run next_range_run(Request& request, uint64_t max_bytes) {
  RunCursor& c = request.cursor;
  const Part& source = request.source->parts[c.source_part];
  const Part& destination = request.destination->parts[c.destination_part];
  const uint64_t source_left = source.length - c.source_at;
  const uint64_t destination_left = destination.length - c.destination_at;
  const uint64_t bytes = std::min({c.remaining, source_left, destination_left, max_bytes});
  Run run;
  run.source = source.mapping;
  run.destination = destination.mapping;
  run.source_offset = source.offset + c.source_at;
  run.destination_offset = destination.offset + c.destination_at;
  run.length = bytes;
  run.pair_count = 1;
  c.remaining -= bytes;
  c.source_at = bytes == source_left ? 0 : c.source_at + bytes;
  c.destination_at = bytes == destination_left ? 0 : c.destination_at + bytes;
  c.source_part += bytes == source_left ? 1 : 0;
  c.destination_part += bytes == destination_left ? 1 : 0;
  return run;
}

}  // namespace

void start_runs(Request& request) {
  const RunCursor range = request.cursor;  // validation has put the byte range there
  request.cursor = RunCursor{};
  request.cursor.chunk = request.first_chunk;
  if (request.op == shm::Op::kRange) request.cursor = range;
}

bool runs_exhausted(const Request& request) {
  if (request.ended_early) return true;
  if (request.op == shm::Op::kRange) return request.cursor.remaining == 0;
  return request.cursor.group_count == 0 && request.cursor.next_pair == request.pair_count;
}

Run next_run(Request& request, ChunkPool& chunks, uint64_t max_bytes) {
  return request.op == shm::Op::kRange ? next_range_run(request, max_bytes)
                                       : next_block_run(request, chunks, max_bytes);
}

uint32_t first_unfinished_pair(const Request& request) {
  const RunCursor& c = request.cursor;
  if (request.op == shm::Op::kRange) return c.remaining == 0 ? 1 : 0;
  if (c.group_count == 0) return c.next_pair;
  // In the group's last run, the pairs wholly handed out are finished.
  const Plan& plan = request.plan;
  if (plan.unit == Plan::Unit::kEntry) return c.group_first;
  const bool last_layer = plan.unit == Plan::Unit::kBlock || c.layer + 1 == request.layer_end;
  const bool last_outer = plan.unit != Plan::Unit::kRegion || c.outer + 1 == plan.outer_dim;
  if (!last_layer || !last_outer) return c.group_first;
  const uint64_t unit = plan.run_bytes(request.layer_end - request.layer_first);
  return c.group_first + static_cast<uint32_t>(c.done / unit);
}

shm::BlockPair& pair_at(Request& request, ChunkPool& chunks, uint32_t index) {
  if (index == 0) return request.first_pair;
  uint32_t chunk = request.first_chunk;
  for (uint32_t i = (index - 1) / shm::kEntriesPerSlot; i != 0; --i) chunk = chunks[chunk].next;
  auto* pairs = reinterpret_cast<shm::BlockPair*>(chunks[chunk].payload.data());
  return pairs[(index - 1) % shm::kEntriesPerSlot];
}

uint32_t mark_failed(Request& request, ChunkPool& chunks, uint32_t first, uint32_t count,
                     shm::BlockPair mark) {
  uint32_t marked = 0;
  uint32_t chunk = request.first_chunk;
  uint32_t chunk_begin = 1;  // index of the chunk's first pair
  const uint32_t end = std::min(first + count, request.pair_count);
  for (uint32_t index = first; index < end; ++index) {
    while (index >= chunk_begin + shm::kEntriesPerSlot) {
      chunk = chunks[chunk].next;
      chunk_begin += shm::kEntriesPerSlot;
    }
    shm::BlockPair* pair = &request.first_pair;
    if (index > 0) {
      pair =
          reinterpret_cast<shm::BlockPair*>(chunks[chunk].payload.data()) + (index - chunk_begin);
    }
    if ((pair->source & kFailedBit) != 0) continue;
    *pair = mark;
    ++marked;
  }
  return marked;
}

}  // namespace wherry::engine
