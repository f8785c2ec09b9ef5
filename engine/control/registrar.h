// Registrar: threads that make mappings usable, and take them down, beside everything else.
//
// map() and release() are for the control thread, which finds the results with take() after the
// eventfd rang. Long work is done in pieces, and a job goes behind the others after each: a
// registration of gigabytes never holds up one of a page. Failures are results.
#pragma once

#include <concurrentqueue/concurrentqueue.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/tables.h"
#include "engine/transport/transport.h"
#include "shm/file_descriptor.h"
#include "shm/status.h"

namespace wherry::engine {

struct RegistrarOptions {
  uint32_t threads = 2;
  uint64_t piece_bytes = uint64_t{64} << 20;  // prefaulted or unmapped at once
  std::vector<Transport*> transports;         // those started
  int result_eventfd = -1;                    // rung after a result
};

struct RegistrarResult {
  enum class Kind : uint8_t { kMapped, kReleased };
  Kind kind = Kind::kMapped;
  std::shared_ptr<Mapping> mapping;
  Status status;  // of kMapped; when it failed nothing is mapped
};

class Registrar {
 public:
  // NO_RESOURCES when a thread cannot be had.
  static Result<std::unique_ptr<Registrar>> start(const RegistrarOptions& options);

  // Jobs not finished are undone, so that nothing stays mapped that was not handed out.
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Maps mapping->length bytes from mapping->file_offset of the file, prefaults them, sets
  // mapping->base and registers it with the transports. Nobody else touches the mapping until the
  // result.
  void map(std::shared_ptr<Mapping> mapping, shm::UniqueFd fd);

  // Takes down what map() made; nobody touches it any more.
  void release(std::shared_ptr<Mapping> mapping);

  bool take(RegistrarResult* result) { return results_.try_dequeue(*result); }

 private:
  struct Job;

  explicit Registrar(const RegistrarOptions& options);

  void work();
  void put(std::unique_ptr<Job> job);
  bool advance(Job& job);
  Status map_now(Job& job);
  Status prefault_piece(Job& job);
  bool unmap_piece(Job& job);
  void answer(Job& job);

  RegistrarOptions options_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;  // under mutex_
  bool ending_ = false;                    // under mutex_
  moodycamel::ConcurrentQueue<RegistrarResult> results_;
};

}  // namespace wherry::engine
