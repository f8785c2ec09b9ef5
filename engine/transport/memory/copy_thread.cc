#include "engine/transport/memory/copy_thread.h"

#include <pthread.h>

#include <csignal>
#include <system_error>

#include "shm/doorbell.h"
#include "shm/relax.h"

namespace wherry::engine {
namespace {

constexpr uint32_t kSpins = 2000;                   // some ten microseconds
constexpr int64_t kLongestSleepNs = 1'000'000'000;  // a lost wake-up would cost that much

}  // namespace

Result<std::unique_ptr<CopyThread>> CopyThread::start() {
  std::unique_ptr<CopyThread> copier(new CopyThread);
  // Signals are for other threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    copier->thread_ = std::thread([raw = copier.get()] { raw->run(); });
    pthread_setname_np(copier->thread_.native_handle(), "wherry-copy");
  } catch (const std::system_error& error) {
    status = errno_status(Code::kNoResources, "starting a copy thread", error.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  return copier;
}

CopyThread::~CopyThread() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  shm::futex_wake(given_);
  thread_.join();
}

void CopyThread::give(const Job& job) {
  const uint32_t number = given_.load(std::memory_order_relaxed);  // relaxed: written here only
  jobs_[number % kMaxJobs] = job;
  given_.store(number + 1, std::memory_order_release);
  shm::doorbell_fence();
  // relaxed: the fence orders it.
  if (sleeping_.load(std::memory_order_relaxed)) shm::futex_wake(given_);
}

void CopyThread::run() {
  for (uint32_t seen = 0; wait_for_more(seen); ++seen) {
    const Job& job = jobs_[seen % kMaxJobs];
    copy_streaming(job.pieces.data(), job.count);
    fence_streaming();
    done_.store(seen + 1, std::memory_order_release);
  }
}

// False when there is nothing more and never will be.
bool CopyThread::wait_for_more(uint32_t seen) {
  const auto more = [&] { return given_.load(std::memory_order_acquire) != seen; };
  for (uint32_t spin = 0; spin < kSpins; ++spin) {
    if (more()) return true;
    if (stop_.load(std::memory_order_acquire)) break;
    shm::relax();
  }
  sleeping_.store(true, std::memory_order_relaxed);  // relaxed: the fence orders it
  shm::doorbell_fence();
  while (!more() && !stop_.load(std::memory_order_acquire)) {
    shm::futex_wait(given_, seen, kLongestSleepNs);
  }
  sleeping_.store(false, std::memory_order_relaxed);
  return more();
}

}  // namespace wherry::engine
