#include "tools/bench/ring_stream.h"

#include <sched.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>

#include "engine/control/affinity.h"
#include "shm/ring.h"

namespace wherry::bench {
namespace {

constexpr uint32_t kCapacity = 1024;

struct Shared {
  alignas(128) shm::Slot slots[kCapacity] = {};
  alignas(128) std::atomic<uint64_t> head{0};  // copied up to here
  alignas(128) std::atomic<bool> end{false};
};

// Copies every slot of every record, as a poller does before it looks at them.
void read_all(Shared& shared, uint32_t slots, bool own_core) {
  shm::RecordReader reader(shared.slots, kCapacity);
  shm::Payload payload;
  while (!shared.end.load(std::memory_order_acquire)) {
    if (!reader.ready()) {
      if (!own_core) sched_yield();
      continue;
    }
    reader.copy_head(payload.data());
    for (uint32_t i = 1; i < slots; ++i)
      reader.copy_extension(i - 1, payload.data(), payload.size());
    asm volatile("" : : "g"(payload.data()) : "memory");
    reader.consume(slots);
    shared.head.store(reader.position(), std::memory_order_release);
  }
}

}  // namespace

Result<double> ring_stream(const Cores& cores, uint32_t slots, uint64_t slice_ns) {
  const auto shared = std::make_unique<Shared>();
  const bool own_core = cores.two();
  std::thread partner;
  try {
    partner = std::thread([&shared, &cores, slots, own_core] {
      // It has worked for the poller; if it does not here, the floor is low and nothing is lost.
      static_cast<void>(engine::pin_this_thread(cores.engine));
      read_all(*shared, slots, own_core);
    });
  } catch (const std::system_error& error) {
    return errno_status(Code::kNoResources, "starting a thread", error.code().value());
  }
  shm::RecordWriter writer(shared->slots, kCapacity);
  shm::Payload payload{};
  const uint64_t begin = monotonic_ns();
  uint64_t now = begin;
  uint64_t records = 0;
  uint64_t head = 0;
  for (; now - begin < slice_ns; now = monotonic_ns()) {
    for (uint32_t batch = 0; batch < 1024; batch += slots) {
      while (writer.position() + slots - head > kCapacity) {
        head = shared->head.load(std::memory_order_acquire);
        if (!own_core) sched_yield();
      }
      for (uint32_t i = 1; i < slots; ++i) {
        writer.put_extension(i - 1, payload.data(), payload.size());
      }
      writer.publish(payload.data(), slots);
      ++records;
    }
  }
  shared->end.store(true, std::memory_order_release);
  partner.join();
  return static_cast<double>(records) * 1e9 / static_cast<double>(now - begin);
}

}  // namespace wherry::bench
