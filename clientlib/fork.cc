#include "clientlib/fork.h"

#include <pthread.h>

#include <atomic>

namespace wherry::detail {
namespace {

std::atomic<uint32_t> g_generation{0};

}  // namespace

uint32_t fork_generation() {
  static int registered = pthread_atfork(
      nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return g_generation.load(std::memory_order_relaxed);
}

Status in_a_fork() {
  return {
      Code::kAborted,
      "client: wanted the process that attached, got a forked child of it; attach in the child"};
}

}  // namespace wherry::detail
