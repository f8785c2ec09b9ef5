// Registrar: threads that make mappings usable, take them down, and do what else is slow, beside
// everything else.
//
// map(), release() and run() are for the control thread, which finds the results with take() after
// the eventfd rang. Long work on mappings is done in pieces, and whose job it is waits for
// everybody else's turn after each: neither a registration of gigabytes nor thousands of small ones
// hold up another client. Failures are results.
#pragma once

#include <concurrentqueue/concurrentqueue.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
  enum class Kind : uint8_t { kMapped, kReleased, kRan };
  Kind kind = Kind::kMapped;
  std::shared_ptr<Mapping> mapping;
  Status status;               // of kMapped; when it failed nothing is mapped
  std::function<void()> done;  // of kRan: for the control thread to call
};

class Registrar {
 public:
  // Who takes turns: a client's session, or a connection.
  using Owner = uint64_t;

  // NO_RESOURCES when a thread cannot be had.
  static Result<std::unique_ptr<Registrar>> start(const RegistrarOptions& options);

  // Jobs not finished are undone, so that nothing stays mapped that was not handed out.
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Maps mapping->length bytes from mapping->file_offset of the file, prefaults them, sets
  // mapping->base and registers it with the transports. Nobody else touches the mapping until the
  // result.
  void map(Owner owner, std::shared_ptr<Mapping> mapping, shm::UniqueFd fd);

  // Takes down what map() made; nobody touches it any more.
  void release(Owner owner, std::shared_ptr<Mapping> mapping);

  // Runs `work` on a registrar thread; `done` comes back as a result. Neither runs when the
  // registrar ends before.
  void run(Owner owner, std::function<void()> work, std::function<void()> done);

  bool take(RegistrarResult* result) { return results_.try_dequeue(*result); }

 private:
  struct Job;

  explicit Registrar(const RegistrarOptions& options);

  void work();
  void put(std::unique_ptr<Job> job);
  void put_locked(std::unique_ptr<Job> job);
  std::unique_ptr<Job> take_job_locked();
  bool advance(Job& job);
  Status map_now(Job& job);
  Status prefault_piece(Job& job);
  bool unmap_piece(Job& job);
  void answer(Job& job);

  RegistrarOptions options_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_: the jobs of each owner that has any, and these owners in the order of their
  // turns.
  std::map<Owner, std::deque<std::unique_ptr<Job>>> jobs_;
  std::deque<Owner> turns_;
  bool ending_ = false;
  moodycamel::ConcurrentQueue<RegistrarResult> results_;
};

}  // namespace wherry::engine
