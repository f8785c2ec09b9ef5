// Owner: the one thread that a channel belongs to, until that thread gives it up or ends. Internal.
//
// Threads are told apart by tokens, which are never used again: a new thread is not taken for one
// that has ended. Any thread may call; nothing blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace wherry::detail {

// The word that says whose a channel is; 0 = nobody's. Shared, because a thread that ends gives
// back what it has, and by then the channel may be gone.
using OwnerWord = std::atomic<uint64_t>;

class Owner {
 public:
  // Nobody's.
  Owner() : word_(std::make_shared<OwnerWord>(0)) {}

  // Whether it is the calling thread's, after taking it if it was nobody's.
  bool try_take() noexcept;
  // Whether it is the calling thread's.
  bool held() const noexcept;
  // Gives it up; nothing happens when it is not the calling thread's.
  void release() noexcept;

 private:
  const std::shared_ptr<OwnerWord> word_;
};

}  // namespace wherry::detail
