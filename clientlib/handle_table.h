// HandleTable: from the handles that callers hold to those of the engine of today. Internal.
//
// Any thread may look up, without a lock; the session changes entries, one thread at a time (it
// holds its own lock). An entry is a seqlock over atomic words, so a reader never sees half of a
// change. Only add() allocates, and may throw for want of memory, before it changes anything.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
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
    // Word by word into its place: a wide copy of what narrow stores just wrote would wait for
    // them.
    auto* const bytes = reinterpret_cast<std::byte*>(info);
    uint64_t before = 0;
    uint64_t generation = 0;
    do {
      before = entry.version.load(std::memory_order_acquire);
      generation = entry.generation.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) {
        const uint64_t word = entry.words[i].load(std::memory_order_acquire);
        std::memcpy(bytes + i * sizeof(word), &word, sizeof(word));
      }
      // relaxed: the acquire loads before it keep it behind them.
    } while ((before & 1) != 0 || entry.version.load(std::memory_order_relaxed) != before);
    if (generation != handle >> 32) return false;
    return info->kind != HandleKind::kNone;
  }

  // Writers only, below here. A new handle; 0 when the table is full.
  uint64_t add(const HandleInfo& info) {
    if (free_.empty() && !add_chunk()) return 0;
    const uint32_t slot = free_.back();
    free_.pop_back();
    Entry& entry = at(slot);
    const auto generation =
        static_cast<uint32_t>(entry.generation.load(std::memory_order_relaxed) + 1);
    write(entry, generation == 0 ? 1 : generation, info);
    return entry.generation.load(std::memory_order_relaxed) << 32 | slot;
  }

  // False, and nothing changes, when the handle is none of this table's or was removed.
  bool change(uint64_t handle, const HandleInfo& info) {
    HandleInfo old;
    if (!find(handle, &old)) return false;
    Entry& entry = at(static_cast<uint32_t>(handle));
    write(entry, entry.generation.load(std::memory_order_relaxed), info);
    return true;
  }

  bool remove(uint64_t handle) {
    if (!change(handle, HandleInfo{})) return false;
    free_.push_back(static_cast<uint32_t>(handle));  // has room: see add_chunk()
    return true;
  }

  static constexpr uint32_t kMaxHandles = 65'536;

 private:
  static constexpr size_t kWords = sizeof(HandleInfo) / sizeof(uint64_t);
  static constexpr uint32_t kChunkEntries = 128;
  static constexpr uint32_t kChunks = kMaxHandles / kChunkEntries;

  struct Entry {
    std::atomic<uint64_t> version{0};  // odd while it is being written
    std::atomic<uint64_t> generation{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  using Chunk = std::array<Entry, kChunkEntries>;

  bool add_chunk() {
    if (used_chunks_ == kChunks) return false;
    free_.reserve((used_chunks_ + 1) * kChunkEntries);  // of all slots there are
    chunks_[used_chunks_].store(new Chunk, std::memory_order_release);
    ++used_chunks_;
    for (uint32_t i = 1; i <= kChunkEntries; ++i) {
      free_.push_back(used_chunks_ * kChunkEntries - i);
    }
    return true;
  }

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
  uint32_t used_chunks_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace wherry::detail
