// Life: one attachment to one engine, as the keeper and all channels of it see it. Internal; any
// thread.
//
// The connection may end long before the engine's process does, or without it. Only when the
// process is gone, which its pidfd tells, is it certain that nobody moves anything any more.
#pragma once

#include <poll.h>

#include <atomic>
#include <utility>

#include "shm/file_descriptor.h"

namespace wherry::detail {

class Life {
 public:
  Life() = default;
  explicit Life(shm::UniqueFd pidfd) : pidfd_(std::move(pidfd)) {}

  // The connection is over: nothing new may begin.
  void lose() { lost_.store(true, std::memory_order_release); }
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  // The engine is dead.
  void end() { dead_.store(true, std::memory_order_release); }
  // Asks the kernel, once the connection is over, until the answer is yes.
  bool dead() {
    if (dead_.load(std::memory_order_acquire)) return true;
    if (!lost() || !readable()) return false;
    end();
    return true;
  }

  int pidfd() const { return pidfd_.get(); }

 private:
  bool readable() const {
    pollfd one{pidfd_.get(), POLLIN, 0};
    return pidfd_.valid() && poll(&one, 1, 0) == 1;
  }

  const shm::UniqueFd pidfd_{};
  std::atomic<bool> lost_{false};
  std::atomic<bool> dead_{false};
};

}  // namespace wherry::detail
