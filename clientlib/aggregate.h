// Aggregate: what stands behind a notification that is not one request of one channel. Internal.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "clientlib/notification.h"

namespace wherry::detail {

struct Aggregate {
  std::vector<TransferCompleteNotification> members;
  std::once_flag merge_once;
  std::atomic<bool> merged{false};
  Completion completion;
};

}  // namespace wherry::detail
