// The SPSC ring of 64-byte slots: one process writes records, one reads them.
//
// RecordWriter and RecordReader are views over slots that lie in shared memory; positions are
// private. A record becomes visible as a whole: extension slots are written first, the head's
// payload next and the head's sequence word (position + 1) last, with release. So a writer killed
// at any instruction leaves nothing half published, and the reader compares one word for equality
// and needs no cursor of the other side. How much may be written is the caller's business (space
// and credits are counted by whoever owns the writer). Each object belongs to one thread; nothing
// here blocks or fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shm/slot.h"

namespace wherry::shm {

class RecordWriter {
 public:
  RecordWriter() = default;
  // `slots` points to `capacity` (a power of two) slots, all sequence words zero.
  RecordWriter(Slot* slots, uint32_t capacity) : slots_(slots), mask_(capacity - 1) {}

  // Position of the next record's head.
  uint64_t position() const { return position_; }

  // Writes extension slot `index` (0 = right behind the head) of the record being built.
  void put_extension(uint32_t index, const void* bytes, size_t size) {
    std::memcpy(slots_[(position_ + 1 + index) & mask_].payload.data(), bytes, size);
  }

  // Writes the head and makes the record of `slot_count` slots visible.
  void publish(const void* head, uint32_t slot_count) {
    Slot& slot = slots_[position_ & mask_];
    std::memcpy(slot.payload.data(), head, kPayloadBytes);
    slot.sequence.store(position_ + 1, std::memory_order_release);
    position_ += slot_count;
  }

 private:
  Slot* slots_ = nullptr;
  uint64_t mask_ = 0;
  uint64_t position_ = 0;
};

class RecordReader {
 public:
  RecordReader() = default;
  RecordReader(const Slot* slots, uint32_t capacity) : slots_(slots), mask_(capacity - 1) {}

  // Position of the next record's head: everything before has been consumed.
  uint64_t position() const { return position_; }

  // Whether a whole record lies at the position.
  bool ready() const {
    return slots_[position_ & mask_].sequence.load(std::memory_order_acquire) == position_ + 1;
  }

  // Copies the head's payload. Only after ready().
  void copy_head(void* head) const {
    std::memcpy(head, slots_[position_ & mask_].payload.data(), kPayloadBytes);
  }

  // Copies `size` bytes of extension slot `index` of the record at the position.
  void copy_extension(uint32_t index, void* bytes, size_t size) const {
    std::memcpy(bytes, slots_[(position_ + 1 + index) & mask_].payload.data(), size);
  }

  // Steps over the record. The caller has checked that `slot_count` is 1 to capacity.
  void consume(uint32_t slot_count) { position_ += slot_count; }

  // Asks for the line that the next record's head will appear in.
  void prefetch() const { __builtin_prefetch(&slots_[position_ & mask_]); }

 private:
  const Slot* slots_ = nullptr;
  uint64_t mask_ = 0;
  uint64_t position_ = 0;
};

}  // namespace wherry::shm
