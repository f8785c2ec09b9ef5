#include "engine/control/sigbus.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace wherry::engine {
namespace {

// Read by the handler at any instant. `begin` is stored last and cleared first: while the handler
// sees it unchanged around its look at the rest, the rest belongs to it.
struct Guard {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<std::atomic<bool>*> broken{nullptr};
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

std::array<Guard, kMaxGuarded> guards;
std::atomic<uint32_t> guards_used{0};  // none at or above this index

// The other side's bookkeeping, never looked at by the handler.
struct Bookkeeping {
  std::mutex mutex;
  std::vector<uint32_t> free;
  std::unordered_map<std::byte*, uint32_t> by_base;
  bool installed = false;
};
Bookkeeping& bookkeeping() {
  static auto* the_one = new Bookkeeping;  // not destroyed: threads may outlive main
  return *the_one;
}

bool replace(uintptr_t address) {
  const uint32_t used = guards_used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    Guard& guard = guards[i];
    const uintptr_t begin = guard.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin) continue;
    const uintptr_t end = guard.end.load(std::memory_order_acquire);
    std::atomic<bool>* broken = guard.broken.load(std::memory_order_acquire);
    if (address >= end || guard.begin.load(std::memory_order_acquire) != begin) continue;
    // Marked first: whoever sees the new memory also sees the mark.
    broken->store(true, std::memory_order_release);
    // The call itself: the C library's is not for signal handlers, and the thread sanitizer takes
    // it for a write to all of the range.
    constexpr long kProtection = PROT_READ | PROT_WRITE;
    constexpr long kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return syscall(SYS_mmap, begin, end - begin, kProtection, kFlags, -1L, 0L) != -1;
  }
  return false;
}

void on_sigbus(int signal, siginfo_t* info, void*) {
  const int saved_errno = errno;
  // Only the kernel's own reports of a touch carry an address.
  if (info->si_code > 0 && replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  raise(signal);
}

}  // namespace

Status install_sigbus_handler() {
  Bookkeeping& book = bookkeeping();
  const std::lock_guard<std::mutex> lock(book.mutex);
  if (book.installed) return {};
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, &action, nullptr) != 0) {
    return errno_status(Code::kInternal, "installing the SIGBUS handler", errno);
  }
  book.installed = true;
  return {};
}

Status guard_range(std::byte* base, uint64_t length, std::atomic<bool>* broken) {
  Bookkeeping& book = bookkeeping();
  const std::lock_guard<std::mutex> lock(book.mutex);
  uint32_t index = guards_used.load(std::memory_order_relaxed);
  if (!book.free.empty()) {
    index = book.free.back();
    book.free.pop_back();
  } else if (index == kMaxGuarded) {
    return {Code::kNoResources,
            "guarding client memory: wanted at most " + std::to_string(kMaxGuarded) +
                " mappings in one engine, got one more; register larger regions"};
  } else {
    guards_used.store(index + 1, std::memory_order_release);
  }
  Guard& guard = guards[index];
  guard.end.store(reinterpret_cast<uintptr_t>(base) + length, std::memory_order_release);
  guard.broken.store(broken, std::memory_order_release);
  guard.begin.store(reinterpret_cast<uintptr_t>(base), std::memory_order_release);
  book.by_base[base] = index;
  return {};
}

void unguard_range(std::byte* base) {
  Bookkeeping& book = bookkeeping();
  const std::lock_guard<std::mutex> lock(book.mutex);
  const auto found = book.by_base.find(base);
  if (found == book.by_base.end()) return;
  guards[found->second].begin.store(0, std::memory_order_release);
  book.free.push_back(found->second);
  book.by_base.erase(found);
}

}  // namespace wherry::engine
