// Counter and SharedText: the cells that everything in the stats file is made of.
//
// Plain words in shared memory, zero at first. Each cell has one writer; any thread or process may
// read at any time. Nothing fails.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace wherry::shm {

struct Counter {
  std::atomic<uint64_t> value;

  // The one writer reads its own last store, so relaxed will do, and no locked instruction is
  // needed. The store is release so that a reader who sees the count also sees what was counted
  // before it.
  void add(uint64_t n) {
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_release);
  }
  void set(uint64_t n) { value.store(n, std::memory_order_release); }
  uint64_t get() const { return value.load(std::memory_order_acquire); }
};
static_assert(sizeof(Counter) == 8 && std::atomic<uint64_t>::is_always_lock_free);

// Text of at most kBytes bytes, filled up with zeros; longer text is cut. Read together with the
// rest of its row under the row's version (see RowVersion), which is why words are stored release
// and loaded acquire: the version's own stores and loads then need no fences.
template <uint32_t kBytes>
struct SharedText {
  static_assert(kBytes % 8 == 0);
  std::atomic<uint64_t> words[kBytes / 8];

  void set(std::string_view text) {
    std::array<uint64_t, kBytes / 8> copy{};
    std::memcpy(copy.data(), text.data(), std::min<size_t>(text.size(), kBytes));
    for (uint32_t i = 0; i < copy.size(); ++i) {
      words[i].store(copy[i], std::memory_order_release);
    }
  }

  std::string get() const {
    std::array<char, kBytes> copy;
    for (uint32_t i = 0; i < kBytes / 8; ++i) {
      const uint64_t word = words[i].load(std::memory_order_acquire);
      std::memcpy(copy.data() + i * 8, &word, 8);
    }
    return {copy.begin(), std::find(copy.begin(), copy.end(), '\0')};
  }
};

// Makes a row of several cells readable as one: odd while the writer is inside the row, and
// different after every change. Cells under it are stored release and loaded acquire.
struct RowVersion {
  std::atomic<uint64_t> value;

  // Release stores of the cells that follow cannot be seen before this one.
  void begin_write() {
    value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void end_write() {
    value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Calls `copy()` until nobody wrote meanwhile. False when that did not come about in a few tries:
  // the writer died inside the row (the last copy is then what it left), or the file is not ours.
  template <typename Copy>
  bool read(Copy copy) const {
    constexpr int kTries = 64;
    for (int i = 0; i < kTries; ++i) {
      const uint64_t before = value.load(std::memory_order_acquire);
      copy();
      // The acquire loads in copy() keep this load behind them.
      const uint64_t after = value.load(std::memory_order_relaxed);
      if (before == after && before % 2 == 0) return true;
    }
    return false;
  }
};

}  // namespace wherry::shm
