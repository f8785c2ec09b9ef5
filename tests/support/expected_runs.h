// Block and byte-range requests with their whole effect written down byte by byte, to compare runs
// with.
//
// Memory is made up: no byte of it is ever read. Where a block's bytes are follows from the order
// in which its kind lies in memory, as nested loops, and from no formula.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/poller/runs.h"

namespace wherry::engine {

using Spot = std::pair<const Mapping*, uint64_t>;  // a byte

inline Geometry geometry(LayoutKind kind, uint32_t blocks, uint32_t layers, uint32_t outer,
                         uint32_t region_bytes) {
  Geometry g;
  g.kind = kind;
  g.dtype = DType::kUint8;
  g.num_blocks = blocks;
  g.num_layers = layers;
  g.outer_dim = outer;
  g.page_size = 1;
  g.inner_dim = region_bytes;
  return g;
}

// A view of made-up memory (nothing is ever read), and where each of its blocks' bytes are.
class Memory {
 public:
  // Parts lie in mappings of their own or in a common one, with gaps.
  Memory(const Geometry& g, const std::vector<uint64_t>& part_bytes, std::mt19937_64& random) {
    static uint64_t ids = 0;
    view_.id = ++ids;
    view_.kind = ViewKind::kLayout;
    view_.geometry = g;
    const bool common = random() % 2 == 0;
    for (const uint64_t bytes : part_bytes) {
      if (mappings_.empty() || !common) {
        auto mapping = std::make_shared<Mapping>();
        mapping->backing = ++ids;
        mapping->file_offset = random() % 4 * 4096;
        mappings_.push_back(mapping);
        view_.mappings.push_back(mapping);
      }
      Mapping& mapping = *mappings_.back();
      mapping.length += 1 + random() % 5;  // a gap
      view_.parts.push_back({&mapping, mapping.length, bytes, 0});
      mapping.length += bytes;
    }
    finish_view(view_);
    if (!g.raw()) walk(g);
  }

  const View& view() const { return view_; }
  const Geometry& geometry() const { return view_.geometry; }
  Spot region(uint32_t block, uint32_t layer, uint32_t outer) const {
    return regions_.at({block, layer, outer});
  }

 private:
  // The regions of each part, one behind the other in the order of the kind.
  void walk(const Geometry& g) {
    std::vector<uint64_t> filled(view_.parts.size(), 0);
    const auto next = [&](uint32_t part, uint32_t b, uint32_t l, uint32_t o) {
      const Part& where = view_.parts.at(part);
      regions_[{b, l, o}] = {where.mapping, where.offset + filled.at(part)};
      filled.at(part) += g.region_bytes();
    };
    const uint32_t nb = g.num_blocks;
    const uint32_t nl = g.num_layers;
    const uint32_t no = g.outer_dim;
    if (g.kind == LayoutKind::kFullyContiguous || g.kind == LayoutKind::kDescriptorList) {
      const bool list = g.kind == LayoutKind::kDescriptorList;
      for (uint32_t b = 0; b < nb; ++b)
        for (uint32_t l = 0; l < nl; ++l)
          for (uint32_t o = 0; o < no; ++o) next(list ? b : 0, b, l, o);
    } else if (g.kind == LayoutKind::kLayerSeparateBlockFirst) {
      for (uint32_t l = 0; l < nl; ++l)
        for (uint32_t b = 0; b < nb; ++b)
          for (uint32_t o = 0; o < no; ++o) next(l, b, l, o);
    } else {
      for (uint32_t l = 0; l < nl; ++l)
        for (uint32_t o = 0; o < no; ++o)
          for (uint32_t b = 0; b < nb; ++b) next(l, b, l, o);
    }
  }

  View view_;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  std::map<std::array<uint32_t, 3>, Spot> regions_;
};

inline Memory layout(const Geometry& g, std::mt19937_64& random) {
  return Memory(g, std::vector<uint64_t>(g.part_count(), g.part_bytes()), random);
}

// A request and, byte by byte, what it has to do.
class Job {
 public:
  Job(const Memory& source, const Memory& destination) : chunks_(64) {
    request_.source = &source.view();
    request_.destination = &destination.view();
  }

  void blocks(const Memory& source, const Memory& destination,
              const std::vector<shm::BlockPair>& pairs, uint32_t layer_first, uint32_t layer_end) {
    request_.plan = make_plan(source.view(), destination.view());
    ASSERT_EQ(request_.plan.code, Code::kOk);
    request_.layer_first = layer_first;
    request_.layer_end = layer_end;
    set_pairs(pairs);
    const Geometry& g = source.geometry();
    for (uint32_t i = 0; i < pairs.size(); ++i) {
      for (uint32_t l = layer_first; l < layer_end; ++l) {
        for (uint32_t o = 0; o < g.outer_dim; ++o) {
          expect(source.region(pairs[i].source, l, o),
                 destination.region(pairs[i].destination, l, o), g.region_bytes(), i);
        }
      }
    }
    start_runs(request_);
  }

  void entries(const std::vector<shm::BlockPair>& pairs) {
    request_.plan = make_plan(*request_.source, *request_.destination);
    ASSERT_EQ(request_.plan.code, Code::kOk);
    set_pairs(pairs);
    for (uint32_t i = 0; i < pairs.size(); ++i) {
      const Part& from = request_.source->parts[pairs[i].source];
      const Part& to = request_.destination->parts[pairs[i].destination];
      expect({from.mapping, from.offset}, {to.mapping, to.offset}, from.length, i);
    }
    start_runs(request_);
  }

  void range(uint64_t source_offset, uint64_t destination_offset, uint64_t length) {
    request_.op = shm::Op::kRange;
    request_.pair_count = 1;
    const std::vector<Spot> from = bytes_of(*request_.source);
    const std::vector<Spot> to = bytes_of(*request_.destination);
    for (uint64_t i = 0; i < length; ++i) {
      expect(from.at(source_offset + i), to.at(destination_offset + i), 1, 0);
    }
    // As validation leaves it.
    RunCursor& cursor = request_.cursor;
    cursor.remaining = length;
    std::tie(cursor.source_part, cursor.source_at) = part_at(*request_.source, source_offset);
    std::tie(cursor.destination_part, cursor.destination_at) =
        part_at(*request_.destination, destination_offset);
    start_runs(request_);
  }

  // Takes all runs; `max` says how long each may be. Compares everything with what is expected.
  template <typename Max>
  void check(const Max& max) {
    std::map<uint32_t, uint64_t> left;  // bytes not handed out, by pair
    for (const auto& [spot, origin] : expected_) ++left[origin.pair];
    while (!runs_exhausted(request_)) {
      const uint64_t most = max();
      const Run run = next_run(request_, chunks_, most);
      ASSERT_GE(run.length, 1u);
      ASSERT_LE(run.length, most);
      std::set<uint32_t> touched;
      for (uint64_t i = 0; i < run.length; ++i) {
        const auto at = expected_.find({run.destination, run.destination_offset + i});
        ASSERT_NE(at, expected_.end()) << "a byte that nobody asked for, or one twice";
        ASSERT_EQ(at->second.from, Spot(run.source, run.source_offset + i));
        touched.insert(at->second.pair);
        if (--left[at->second.pair] == 0) left.erase(at->second.pair);
        expected_.erase(at);
      }
      // A failure of this run is blamed on exactly the pairs that have bytes in it.
      ASSERT_EQ(*touched.begin(), run.first_pair);
      ASSERT_EQ(touched.size(), run.pair_count);
      ASSERT_EQ(*touched.rbegin(), run.first_pair + run.pair_count - 1);
      ASSERT_EQ(first_unfinished_pair(request_),
                left.empty() ? request_.pair_count : left.begin()->first);
      runs_.push_back(run);
    }
    EXPECT_TRUE(expected_.empty()) << expected_.size() << " bytes were left behind";
    EXPECT_EQ(first_unfinished_pair(request_), request_.pair_count);
  }
  void check_whole() {
    check([] { return UINT64_MAX; });
  }

  // Whether some two runs in a row would have been one.
  bool could_be_fewer() const {
    for (size_t i = 0; i + 1 < runs_.size(); ++i) {
      const Run& a = runs_[i];
      const Run& b = runs_[i + 1];
      if (a.source == b.source && a.destination == b.destination &&
          a.source_offset + a.length == b.source_offset &&
          a.destination_offset + a.length == b.destination_offset) {
        return true;
      }
    }
    return false;
  }
  const std::vector<Run>& runs() const { return runs_; }
  Request& request() { return request_; }
  ChunkPool& chunks() { return chunks_; }

 private:
  struct Origin {
    Spot from;
    uint32_t pair;
  };

  void set_pairs(const std::vector<shm::BlockPair>& pairs) {
    request_.pair_count = static_cast<uint32_t>(pairs.size());
    if (!pairs.empty()) request_.first_pair = pairs[0];
    uint32_t last = kNone;
    for (uint32_t i = 1; i < pairs.size(); ++i) {
      const uint32_t in_chunk = (i - 1) % shm::kEntriesPerSlot;
      if (in_chunk == 0) {
        const uint32_t chunk = chunks_.take();
        (last == kNone ? request_.first_chunk : chunks_[last].next) = chunk;
        last = chunk;
      }
      std::memcpy(chunks_[last].payload.data() + in_chunk * sizeof(pairs[i]), &pairs[i],
                  sizeof(pairs[i]));
    }
  }

  void expect(Spot from, Spot to, uint64_t bytes, uint32_t pair) {
    for (uint64_t i = 0; i < bytes; ++i) {
      const bool first =
          expected_.insert({{to.first, to.second + i}, {{from.first, from.second + i}, pair}})
              .second;
      ASSERT_TRUE(first) << "the test names a destination twice";
    }
  }

  static std::vector<Spot> bytes_of(const View& view) {
    std::vector<Spot> bytes;
    for (const Part& part : view.parts) {
      for (uint64_t i = 0; i < part.length; ++i) bytes.push_back({part.mapping, part.offset + i});
    }
    return bytes;
  }

  static std::pair<uint32_t, uint64_t> part_at(const View& view, uint64_t offset) {
    uint32_t part = 0;
    while (offset >= view.parts[part].length) offset -= view.parts[part++].length;
    return {part, offset};
  }

  Request request_;
  ChunkPool chunks_;
  std::map<Spot, Origin> expected_;
  std::vector<Run> runs_;
};

}  // namespace wherry::engine
