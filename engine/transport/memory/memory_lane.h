// MemoryLane: one poller's end of the memory transport.
//
// Runs are copied in the order posted, warm ones one by one through the caches, cold ones several
// side by side past them. With copy threads, cold ones go to those first and may overtake others.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/transport/memory/copy_thread.h"
#include "engine/transport/memory/recently_written.h"
#include "engine/transport/transport.h"

namespace wherry::engine {

class MemoryLane final : public Lane {
 public:
  // The threads outlive the lane's last poll().
  MemoryLane(uint64_t piece_bytes, std::span<const std::unique_ptr<CopyThread>> copiers);

  uint32_t room() const override { return kEntries - (tail_ - head_); }
  // What one poll copies, and what keeps the threads busy: a request that comes meanwhile waits for
  // no more.
  uint64_t window_bytes() const override {
    return ((all_cached_ ? kCachedPerCold : 1) + CopyThread::kMaxJobs * helpers_.size()) *
           piece_bytes_;
  }
  uint64_t max_run_bytes() const override { return piece_bytes_; }
  void post(const Run* runs, uint32_t count) override;
  uint32_t poll(RunResult* results, uint32_t capacity) override;
  void abort(uint32_t request) override;
  bool busy() const override { return head_ != tail_ || helped_ != 0; }
  int arm() override { return -1; }
  LaneStats stats() const override { return stats_; }

 private:
  struct Entry {
    Run run;
    bool dropped = false;
  };
  // Runs that are copied side by side, long ones in several pieces.
  struct Batch {
    CopyThread::Job job;
    uint32_t runs = 0;
    uint64_t bytes = 0;
  };
  // A copy thread, and the runs it has: job `n` in jobs[n % kMaxJobs].
  struct Helper {
    struct Runs {
      std::array<Run, kStreams> runs;
      uint32_t count = 0;
    };
    CopyThread* thread = nullptr;
    std::array<Runs, CopyThread::kMaxJobs> jobs;
    uint32_t given = 0;
    uint32_t collected = 0;
  };
  static constexpr uint32_t kEntries = 64;
  static constexpr uint32_t kCachedPerCold = 2;  // bytes in the same time, at least

  const Entry& take() { return queue_[head_++ % kEntries]; }
  bool is_cold(const Entry& entry) const;
  Batch cold_batch(uint32_t most);
  uint32_t collect(RunResult* results, uint32_t capacity);
  void hand_out();
  bool worth_handing_out() const;
  RunResult copied_result(const Run& run);

  const uint64_t piece_bytes_;
  std::array<Entry, kEntries> queue_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  RecentlyWritten recent_;
  bool all_cached_ = false;  // what the last polls copied
  std::vector<Helper> helpers_;
  uint32_t helped_ = 0;  // jobs given and not collected
  LaneStats stats_;
};

}  // namespace wherry::engine
