#include "tools/bench/ping_pong.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <future>
#include <system_error>
#include <thread>

#include "engine/control/affinity.h"

namespace wherry::bench {
namespace {

using Payload = std::array<uint64_t, 8>;

struct Way {
  alignas(128) std::array<std::atomic<uint64_t>, 8> payload{};
  alignas(128) std::atomic<uint32_t> flag{0};
};

// relaxed: the flag orders the payload.
void send(Way& way, uint32_t number, const Payload& payload) {
  for (size_t i = 0; i < payload.size(); ++i) {
    way.payload[i].store(payload[i], std::memory_order_relaxed);
  }
  way.flag.store(number, std::memory_order_release);
}

Payload receive(const Way& way, uint32_t number, bool own_core) {
  while (way.flag.load(std::memory_order_acquire) != number) {
    if (!own_core) sched_yield();
  }
  Payload payload;
  for (size_t i = 0; i < payload.size(); ++i) {
    payload[i] = way.payload[i].load(std::memory_order_relaxed);
  }
  return payload;
}

}  // namespace

Status ping_pong(const Cores& cores, uint32_t count, std::vector<uint32_t>* samples) {
  Way there;
  Way back;
  constexpr uint32_t kWarmUp = 1000;
  const uint32_t all = count + kWarmUp;
  const bool own_core = cores.two();
  std::promise<Status> pinned;
  std::future<Status> ready = pinned.get_future();
  std::thread partner;
  try {
    partner = std::thread([&] {
      Status status = engine::pin_this_thread(cores.engine);
      const bool good = status.ok();
      pinned.set_value(std::move(status));
      for (uint32_t i = 1; good && i <= all; ++i) send(back, i, receive(there, i, own_core));
    });
  } catch (const std::system_error& error) {
    return errno_status(Code::kNoResources, "starting a thread", error.code().value());
  }
  Status status = ready.get();
  Payload payload{};
  uint64_t before = monotonic_ns();
  for (uint32_t i = 1; status.ok() && i <= all; ++i) {
    send(there, i, payload);
    payload = receive(back, i, own_core);
    payload[0] += 1;
    const uint64_t now = monotonic_ns();
    if (i > kWarmUp) samples->push_back(static_cast<uint32_t>(now - before));
    before = now;
  }
  partner.join();
  return status;
}

}  // namespace wherry::bench
