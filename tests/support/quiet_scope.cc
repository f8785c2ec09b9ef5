#include "tests/support/quiet_scope.h"

#include <linux/prctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace {

thread_local bool t_counting = false;
thread_local uint64_t t_heap_calls = 0;
thread_local uint64_t t_system_calls = 0;
thread_local long t_first_system_call = -1;
thread_local char t_selector = SYSCALL_DISPATCH_FILTER_ALLOW;

void count_heap_call() {
  if (t_counting) ++t_heap_calls;
}

// Lets the call happen after all, and everything after it: one is enough to fail.
void on_sigsys(int /*signal*/, siginfo_t* info, void* context) {
  t_selector = SYSCALL_DISPATCH_FILTER_ALLOW;
  ++t_system_calls;
  t_first_system_call = info->si_syscall;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long result =
      syscall(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
              registers[REG_R10], registers[REG_R8], registers[REG_R9]);
  registers[REG_RAX] = result == -1 ? -errno : result;
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the C library's own names
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);
// NOLINTEND(readability-identifier-naming)

void* malloc(size_t size) {
  count_heap_call();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  count_heap_call();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  count_heap_call();
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count_heap_call();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  count_heap_call();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  count_heap_call();
  __libc_free(memory);
}
}

namespace wherry::test {

bool QuietScope::supported(std::string* reason) {
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &t_selector) != 0) {
    *reason = std::string("this kernel has no syscall user dispatch: ") + strerror(errno);
    return false;
  }
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  return true;
}

void QuietScope::begin() {
  struct sigaction action {};
  action.sa_sigaction = on_sigsys;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSYS, &action, nullptr);
  t_heap_calls = 0;
  t_system_calls = 0;
  t_first_system_call = -1;
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &t_selector);
  t_counting = true;
  t_selector = SYSCALL_DISPATCH_FILTER_BLOCK;
}

void QuietScope::end() {
  t_selector = SYSCALL_DISPATCH_FILTER_ALLOW;
  t_counting = false;
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  heap_calls_ = t_heap_calls;
  system_calls_ = t_system_calls;
  first_system_call_ = t_first_system_call;
}

}  // namespace wherry::test
