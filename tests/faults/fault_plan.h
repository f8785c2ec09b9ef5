// What an engine with fault points is to do at them: one page that it and the test share.
//
// The test makes it before it starts any thread; engines find it by the environment. Written by the
// test, but for `stands`.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/poller/fault_point.h"

namespace wherry::test {

// In which order the engine does the steps of the in-flight table.
enum class Order : uint32_t {
  kRight = 0,
  kClearedBeforePublished = 1,
  kMarkedAfterCopied = 2,
};

struct FaultPlan {
  static constexpr const char* kVariable = "WHERRY_FAULT_PLAN";

  std::atomic<uint32_t> stop_at;     // a FaultPoint at which the poller stands still for good
  std::atomic<uint32_t> passes;      // of that point, the last of which is the one
  std::atomic<uint32_t> stands;      // 1 once it does
  std::atomic<uint32_t> order;       // Order
  std::atomic<uint32_t> stretch_ns;  // what the way from each point to the next takes longer
};

inline FaultPlan* map_fault_plan(int fd) {
  void* page = mmap(nullptr, sizeof(FaultPlan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : static_cast<FaultPlan*>(page);
}

class FaultPlanFile {
 public:
  explicit FaultPlanFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    plan_ = ftruncate(fd, sizeof(FaultPlan)) == 0 ? map_fault_plan(fd) : nullptr;
    if (plan_ == nullptr) std::abort();
    close(fd);
    setenv(FaultPlan::kVariable, path.c_str(), 1);
  }
  ~FaultPlanFile() {
    unsetenv(FaultPlan::kVariable);
    munmap(plan_, sizeof(FaultPlan));
  }
  FaultPlanFile(const FaultPlanFile&) = delete;
  FaultPlanFile& operator=(const FaultPlanFile&) = delete;

  FaultPlan* operator->() { return plan_; }

 private:
  FaultPlan* plan_ = nullptr;
};

}  // namespace wherry::test
