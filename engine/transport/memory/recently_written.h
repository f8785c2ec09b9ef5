// RecentlyWritten: which destinations are likely still in the caches.
//
// Streaming stores suit cold memory and hurt warm memory; which one a block is, its pool's size
// alone does not say. So a lane remembers where it wrote last: a small table by page, entries of
// which may be lost to one another. One thread. Wrong answers cost speed, nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace wherry::engine {

class RecentlyWritten {
 public:
  // Whether a copy to that address was noted within the last kReuseBytes noted.
  bool contains(const std::byte* to) const {
    const Entry& entry = entries_[index_of(page_of(to))];
    return entry.page == page_of(to) && noted_ - entry.at <= kReuseBytes;
  }

  void note(const std::byte* to, uint64_t bytes) {
    entries_[index_of(page_of(to))] = {page_of(to), noted_};
    noted_ += bytes;
  }

 private:
  struct Entry {
    uintptr_t page = 0;
    uint64_t at = 0;
  };
  static constexpr uint32_t kIndexBits = 10;
  static constexpr uint64_t kReuseBytes = 8 << 20;  // about what a core's share of caches holds

  static uintptr_t page_of(const std::byte* to) { return reinterpret_cast<uintptr_t>(to) >> 12; }
  static size_t index_of(uintptr_t page) {
    return (page * 0x9e3779b97f4a7c15u) >> (64 - kIndexBits);  // Fibonacci hashing
  }

  std::array<Entry, 1 << kIndexBits> entries_{};
  uint64_t noted_ = 0;
};

}  // namespace wherry::engine
