// CopyThread: a further core that copies for a lane, past the caches.
//
// The lane's thread gives it jobs and sees, in the order given, how many are done; neither waits
// for the other. While there is nothing to do the thread spins for a moment, then sleeps: giving a
// job to a sleeping one costs a system call. Only start() can fail.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "engine/transport/memory/copy.h"
#include "shm/status.h"

namespace wherry::engine {

class CopyThread {
 public:
  struct Job {
    std::array<CopyPiece, kStreams> pieces;
    uint32_t count = 0;
  };
  // Jobs that it takes before the first of them is done: one is copied while the next one waits.
  static constexpr uint32_t kMaxJobs = 2;

  // NO_RESOURCES: no thread to be had.
  static Result<std::unique_ptr<CopyThread>> start();
  // Ends the thread, once it has done what it was given.
  ~CopyThread();
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;

  // The lane's thread. give(): fewer than kMaxJobs may be under way.
  void give(const Job& job);
  // Jobs done since the beginning; what they copied is seen by whoever is told of it. Wraps.
  uint32_t done() const { return done_.load(std::memory_order_acquire); }

 private:
  CopyThread() = default;
  void run();
  bool wait_for_more(uint32_t seen);

  alignas(128) std::atomic<uint32_t> given_{0};  // the thread sleeps on it
  std::atomic<bool> stop_{false};
  std::array<Job, kMaxJobs> jobs_;
  alignas(128) std::atomic<uint32_t> done_{0};
  std::atomic<bool> sleeping_{false};
  std::thread thread_;
};

}  // namespace wherry::engine
