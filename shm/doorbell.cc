#include "shm/doorbell.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace wherry::shm {

// Not FUTEX_PRIVATE: waker and waiter are different processes.
void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns) {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

Result<UniqueFd> create_eventfd() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return errno_status(Code::kNoResources, "creating an eventfd", errno);
  return fd;
}

void ring_eventfd(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(fd, &one, sizeof(one));
}

}  // namespace wherry::shm
