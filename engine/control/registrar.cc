#include "engine/control/registrar.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "engine/control/sigbus.h"
#include "shm/doorbell.h"
#include "shm/memory_limits.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace wherry::engine {

// What is left to do. Steps follow each other; one that fails goes to kDeregister.
struct Registrar::Job {
  enum class Step : uint8_t { kMap, kPrefault, kRegister, kDeregister, kUnmap };
  Step step = Step::kMap;
  RegistrarResult::Kind kind = RegistrarResult::Kind::kMapped;
  Owner owner = 0;
  std::shared_ptr<Mapping> mapping;
  shm::UniqueFd fd;
  uint64_t done = 0;      // bytes of the current step
  size_t registered = 0;  // transports that know the mapping
  Status failure;
  std::function<void()> work;  // of kRan
  std::function<void()> then;

  void fail(Status status) {
    failure = std::move(status);
    step = Step::kDeregister;
    done = 0;
  }
};

Registrar::Registrar(const RegistrarOptions& options) : options_(options) {}

Result<std::unique_ptr<Registrar>> Registrar::start(const RegistrarOptions& options) {
  std::unique_ptr<Registrar> registrar(new Registrar(options));
  try {
    for (uint32_t i = 0; i < options.threads; ++i) {
      registrar->threads_.emplace_back([self = registrar.get()] { self->work(); });
      pthread_setname_np(registrar->threads_.back().native_handle(),
                         ("wherry-reg-" + std::to_string(i)).c_str());
    }
  } catch (const std::system_error& error) {
    return errno_status(Code::kNoResources, "starting a registrar thread", error.code().value());
  }
  return registrar;
}

Registrar::~Registrar() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  while (!turns_.empty()) {
    const std::unique_ptr<Job> job = take_job_locked();
    if (job->kind == RegistrarResult::Kind::kRan) continue;
    const bool being_undone = !job->failure.ok();
    if (job->kind == RegistrarResult::Kind::kMapped && !being_undone) {
      job->fail({Code::kAborted, "the engine ends"});
    }
    while (!advance(*job)) {
    }
  }
  for (RegistrarResult result; take(&result);) {
    if (result.kind != RegistrarResult::Kind::kMapped || !result.status.ok()) continue;
    Job job;
    job.step = Job::Step::kDeregister;
    job.mapping = std::move(result.mapping);
    job.registered = options_.transports.size();
    while (!advance(job)) {
    }
  }
}

void Registrar::map(Owner owner, std::shared_ptr<Mapping> mapping, shm::UniqueFd fd) {
  auto job = std::make_unique<Job>();
  job->owner = owner;
  job->mapping = std::move(mapping);
  job->fd = std::move(fd);
  put(std::move(job));
}

void Registrar::release(Owner owner, std::shared_ptr<Mapping> mapping) {
  auto job = std::make_unique<Job>();
  job->kind = RegistrarResult::Kind::kReleased;
  job->owner = owner;
  job->step = Job::Step::kDeregister;
  job->mapping = std::move(mapping);
  job->registered = options_.transports.size();
  put(std::move(job));
}

void Registrar::run(Owner owner, std::function<void()> work, std::function<void()> done) {
  auto job = std::make_unique<Job>();
  job->kind = RegistrarResult::Kind::kRan;
  job->owner = owner;
  job->work = std::move(work);
  job->then = std::move(done);
  put(std::move(job));
}

void Registrar::put(std::unique_ptr<Job> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    put_locked(std::move(job));
  }
  changed_.notify_one();
}

void Registrar::put_locked(std::unique_ptr<Job> job) {
  const Owner owner = job->owner;
  std::deque<std::unique_ptr<Job>>& jobs = jobs_[owner];
  if (jobs.empty()) turns_.push_back(owner);
  jobs.push_back(std::move(job));
}

// The first job of the owner whose turn it is; the owner's next turn comes after everybody else's.
std::unique_ptr<Registrar::Job> Registrar::take_job_locked() {
  const Owner owner = turns_.front();
  turns_.pop_front();
  const auto found = jobs_.find(owner);
  std::unique_ptr<Job> job = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    jobs_.erase(found);
  } else {
    turns_.push_back(owner);
  }
  return job;
}

void Registrar::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !turns_.empty(); });
    if (ending_) return;
    std::unique_ptr<Job> job = take_job_locked();
    lock.unlock();
    const bool finished = advance(*job);
    if (finished) answer(*job);
    lock.lock();
    if (!finished) put_locked(std::move(job));
  }
}

// One piece of the job; true when it was the last.
bool Registrar::advance(Job& job) {
  if (job.kind == RegistrarResult::Kind::kRan) {
    job.work();
    job.work = nullptr;  // what it holds ends here, not on the control thread
    return true;
  }
  switch (job.step) {
    case Job::Step::kMap:
      if (Status status = map_now(job); !status.ok()) {
        job.failure = std::move(status);
        return true;
      }
      job.step = Job::Step::kPrefault;
      [[fallthrough]];
    case Job::Step::kPrefault:
      if (Status status = prefault_piece(job); !status.ok()) {
        job.fail(std::move(status));
      } else if (job.done == job.mapping->length) {
        job.step = Job::Step::kRegister;
      }
      return false;
    case Job::Step::kRegister:
      if (job.registered == options_.transports.size()) return true;
      if (Status status = options_.transports[job.registered]->register_mapping(*job.mapping);
          !status.ok()) {
        job.fail(std::move(status));
      } else {
        ++job.registered;
      }
      return job.failure.ok() && job.registered == options_.transports.size();
    case Job::Step::kDeregister:
      if (job.registered > 0) {
        options_.transports[--job.registered]->release_mapping(*job.mapping);
        return false;
      }
      if (job.mapping->base == nullptr) return true;
      unguard_range(job.mapping->base);
      job.done = 0;
      job.step = Job::Step::kUnmap;
      [[fallthrough]];
    case Job::Step::kUnmap:
      return unmap_piece(job);
  }
  return true;
}

Status Registrar::map_now(Job& job) {
  Mapping& mapping = *job.mapping;
  // Page tables: eight bytes a page.
  if (Status status = shm::check_memory_available(mapping.length / 512); !status.ok()) {
    return status.with_context("registering a region");
  }
  const int protection = mapping.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const base = mmap(nullptr, mapping.length, protection, MAP_SHARED, job.fd.get(),
                          static_cast<off_t>(mapping.file_offset));
  if (base == MAP_FAILED) {
    return errno_status(Code::kNoResources,
                        "mapping a region of " + std::to_string(mapping.length) + " bytes", errno);
  }
  job.fd.reset();
  // A core dump of the engine is no place for clients' data, nor has it room for them.
  madvise(base, mapping.length, MADV_DONTDUMP);
  mapping.base = static_cast<std::byte*>(base);
  if (Status status = guard_range(mapping.base, mapping.length, &mapping.broken); !status.ok()) {
    munmap(base, mapping.length);
    mapping.base = nullptr;
    return status;
  }
  return {};
}

Status Registrar::prefault_piece(Job& job) {
  Mapping& mapping = *job.mapping;
  const uint64_t bytes = std::min(options_.piece_bytes, mapping.length - job.done);
  const int advice = mapping.writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(mapping.base + job.done, bytes, advice) != 0) {
    const int error = errno;
    if (error == EINTR || error == EAGAIN) return {};
    return errno_status(Code::kNoResources,
                        "prefaulting a region at offset " + std::to_string(job.done) +
                            ": wanted every page to be there, got a refusal; allocate the memory "
                            "(fallocate) before registering it, and keep its pages",
                        error);
  }
  job.done += bytes;
  return {};
}

bool Registrar::unmap_piece(Job& job) {
  Mapping& mapping = *job.mapping;
  uint64_t bytes = std::min(options_.piece_bytes, mapping.length - job.done);
  if (munmap(mapping.base + job.done, bytes) != 0) {
    // Pages larger than a piece (1 GiB) cannot be unmapped in parts.
    bytes = mapping.length - job.done;
    munmap(mapping.base + job.done, bytes);
  }
  job.done += bytes;
  if (job.done < mapping.length) return false;
  mapping.base = nullptr;
  return true;
}

void Registrar::answer(Job& job) {
  results_.enqueue({job.kind, std::move(job.mapping), std::move(job.failure), std::move(job.then)});
  shm::ring_eventfd(options_.result_eventfd);
}

}  // namespace wherry::engine
