// HandleTable: from the handles that callers hold to those of the engine of today. Internal.
//
// Any thread may look up, without a lock; the session changes entries, one thread at a time (it
// holds its own lock). An entry is a seqlock over atomic words, so a reader never sees half of a
// change.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "shm/geometry.h"
#include "shm/status.h"

namespace wherry::detail {

enum class HandleKind : uint8_t { kNone = 0, kRegion, kLayout, kFound, kClient };

struct HandleInfo {
  HandleKind kind = HandleKind::kNone;
  bool writable = false;
  Code broken = Code::kOk;  // why it cannot be used now, if it cannot
  uint8_t unused[5] = {};
  uint64_t engine_handle = 0;
  uint64_t total_bytes = 0;
  Geometry geometry;  // of layouts
};
static_assert(sizeof(HandleInfo) == 48 && std::is_trivially_copyable_v<HandleInfo>);

class HandleTable {
 public:
  HandleTable() = default;
  ~HandleTable() {
    for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
  }
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Copies the entry; false when the handle is none of this table's, or was freed.
  bool find(uint64_t handle, HandleInfo* info) const {
    const auto slot = static_cast<uint32_t>(handle);
    if (handle == 0 || slot / kChunkEntries >= kChunks) return false;
    const Chunk* chunk = chunks_[slot / kChunkEntries].load(std::memory_order_acquire);
    if (chunk == nullptr) return false;
    const Entry& entry = (*chunk)[slot % kChunkEntries];
    std::array<uint64_t, kWords> copy;
    uint64_t before = 0;
    uint64_t generation = 0;
    do {
      before = entry.version.load(std::memory_order_acquire);
      generation = entry.generation.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) copy[i] = entry.words[i].load(std::memory_order_acquire);
      // relaxed: the acquire loads before it keep it behind them.
    } while ((before & 1) != 0 || entry.version.load(std::memory_order_relaxed) != before);
    if (generation != handle >> 32) return false;
    std::memcpy(static_cast<void*>(info), copy.data(), sizeof(copy));
    return info->kind != HandleKind::kNone;
  }

  // Writers only, below here. A new handle; 0 when the table is full.
  uint64_t add(const HandleInfo& info) {
    uint32_t slot = 0;
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    } else {
      if (used_ == kChunks * kChunkEntries) return 0;
      slot = used_;
      auto& chunk = chunks_[slot / kChunkEntries];
      if (chunk.load(std::memory_order_relaxed) == nullptr)
        chunk.store(new Chunk, std::memory_order_release);
      ++used_;
    }
    Entry& entry = at(slot);
    const uint64_t generation = entry.generation.load(std::memory_order_relaxed) + 1;
    write(entry, static_cast<uint32_t>(generation) == 0 ? 1 : static_cast<uint32_t>(generation),
          info);
    return entry.generation.load(std::memory_order_relaxed) << 32 | slot;
  }

  // The handle must be one that add() gave and remove() did not take.
  void change(uint64_t handle, const HandleInfo& info) {
    Entry& entry = at(static_cast<uint32_t>(handle));
    write(entry, entry.generation.load(std::memory_order_relaxed), info);
  }

  void remove(uint64_t handle) {
    change(handle, HandleInfo{});
    free_.push_back(static_cast<uint32_t>(handle));
  }

 private:
  static constexpr size_t kWords = sizeof(HandleInfo) / sizeof(uint64_t);
  static constexpr uint32_t kChunkEntries = 128;
  static constexpr uint32_t kChunks = 512;

  struct Entry {
    std::atomic<uint64_t> version{0};  // odd while it is being written
    std::atomic<uint64_t> generation{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  using Chunk = std::array<Entry, kChunkEntries>;

  Entry& at(uint32_t slot) {
    return (*chunks_[slot / kChunkEntries].load(std::memory_order_relaxed))[slot % kChunkEntries];
  }

  static void write(Entry& entry, uint64_t generation, const HandleInfo& info) {
    std::array<uint64_t, kWords> copy;
    std::memcpy(copy.data(), static_cast<const void*>(&info), sizeof(copy));
    const uint64_t version = entry.version.load(std::memory_order_relaxed);
    // relaxed: the release stores behind it keep it before them, for whoever sees one of these.
    entry.version.store(version + 1, std::memory_order_relaxed);
    entry.generation.store(generation, std::memory_order_release);
    for (size_t i = 0; i < kWords; ++i) entry.words[i].store(copy[i], std::memory_order_release);
    entry.version.store(version + 2, std::memory_order_release);
  }

  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  uint32_t used_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace wherry::detail
