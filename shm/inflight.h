// The in-flight table: how a client tells NOT_STARTED from ENGINE_GONE after the engine's death.
//
// One 64-bit word per request slot of the engine, holding the request id, 0 = none. It lies in e2c,
// so it outlives the engine. The engine's order per request, each step a release store:
//   mark -> the first run is handed to the transport -> the completion is published -> clear
// After the engine's death: completion present = its outcome; else word present = ENGINE_GONE; else
// NOT_STARTED. InflightWriter belongs to the poller, the reader to the channel's thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace wherry::shm {

class InflightWriter {
 public:
  InflightWriter() = default;
  explicit InflightWriter(std::atomic<uint64_t>* words) : words_(words) {}

  void mark(uint32_t slot, uint64_t request_id) {
    words_[slot].store(request_id, std::memory_order_release);
  }
  void clear(uint32_t slot) { words_[slot].store(0, std::memory_order_release); }

 private:
  std::atomic<uint64_t>* words_ = nullptr;
};

class InflightReader {
 public:
  InflightReader() = default;
  InflightReader(const std::atomic<uint64_t>* words, uint32_t count)
      : words_(words), count_(count) {}

  // Only meaningful once the engine is known to be dead (its pidfd is readable).
  bool contains(uint64_t request_id) const {
    for (uint32_t i = 0; i < count_; ++i) {
      if (words_[i].load(std::memory_order_acquire) == request_id) return true;
    }
    return false;
  }

 private:
  const std::atomic<uint64_t>* words_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace wherry::shm
