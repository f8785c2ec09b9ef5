// From a request to its runs, one after the other.
//
// Order: group by group (a group is one pair, or neighbours that move as one), inside a group layer
// by layer and outer by outer. Poller thread only; nothing fails: the request has been validated.
#pragma once

#include <cstdint>

#include "engine/poller/request.h"
#include "engine/transport/transport.h"

namespace wherry::engine {

// Sets the cursor to the beginning.
void start_runs(Request& request);

// Whether every run has been handed out.
bool runs_exhausted(const Request& request);

// The next run, at most `max_bytes` long (at least 1). Only when not exhausted. `request` and
// `streaming` of the run are left to the caller.
Run next_run(Request& request, ChunkPool& chunks, uint64_t max_bytes);

// The pair with this index, from the private copy (slow for far ones: walks the chunks).
shm::BlockPair& pair_at(Request& request, ChunkPool& chunks, uint32_t index);

// Marks pairs [first, first + count) failed, each once; returns how many were not marked before.
uint32_t mark_failed(Request& request, ChunkPool& chunks, uint32_t first, uint32_t count,
                     shm::BlockPair mark);

// First pair of which some run was not handed out (pair_count when exhausted).
uint32_t first_unfinished_pair(const Request& request);

}  // namespace wherry::engine
