// Aggregate: what stands behind a notification that is not one request of one channel. Internal.
//
// Any thread; merged once, by whoever first sees that all members are complete.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "clientlib/notification.h"

namespace wherry::detail {

struct Aggregate {
  std::vector<TransferCompleteNotification> members;
  std::mutex merging;
  std::atomic<bool> merged{false};
  Completion completion;  // once merged
};

}  // namespace wherry::detail
