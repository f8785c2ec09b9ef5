// Request: what a channel knows of one call of the caller, and the pools these live in. Internal.
//
// A request is one record, or several when the call was too large for one. It belongs to the
// channel's thread until `done` is set; then anybody who holds a reference may read `completion`.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "clientlib/outcome.h"
#include "clientlib/types.h"
#include "shm/slot.h"

namespace wherry::detail {

struct Request {
  std::atomic<uint32_t> references{0};  // one of each notification, one of the channel until done
  std::atomic<uint32_t> done{0};        // completion is final
  Completion completion;
  Outcome outcome;
  uint32_t records_out = 0;  // published, not completed
  bool split = false;
  bool cancel_wanted = false;  // some cancels did not fit into the ring yet

  shm::SubmitHead head{};  // of every record of it, but for counts and pairs

  // What is not published yet: block ids from `next` on, and the notification.
  std::vector<BlockId> source;
  std::vector<BlockId> destination;
  size_t next = 0;
  uint32_t index_base = 0;   // of source[0] in the caller's list
  std::string notification;  // goes when all the data has arrived
  Request* next_waiting = nullptr;

  Request* next_free = nullptr;

  size_t waiting_blocks() const { return source.size() - next; }
};

// Requests are taken by the channel's thread and come back from any. No allocation once as many
// exist as were ever in use at a time.
class RequestPool {
 public:
  Request* take() {
    if (free_ == nullptr) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    if (free_ == nullptr) return &all_.emplace_back();
    Request* request = free_;
    free_ = request->next_free;
    return request;
  }

  void give_back(Request* request) {
    request->next_free = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(request->next_free, request, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }

  // Drops a reference; the last one gives the request back.
  void drop(Request* request) {
    if (request->references.fetch_sub(1, std::memory_order_acq_rel) == 1) give_back(request);
  }

 private:
  std::deque<Request> all_;
  Request* free_ = nullptr;
  std::atomic<Request*> returned_{nullptr};
};

// One published record that has not completed.
struct Record {
  uint64_t id = 0;
  Request* request = nullptr;
  uint32_t first_index = 0;  // of its first pair in the caller's list
  uint32_t blocks = 0;
  uint32_t slots = 0;
  bool cancel_sent = false;
  uint32_t next = 0;
};

// The published records of a channel, by id. Sized once: credits bound how many there are.
class RecordTable {
 public:
  explicit RecordTable(uint32_t capacity) : nodes_(capacity), buckets_(capacity, kEnd) {
    for (uint32_t i = 0; i < capacity; ++i) nodes_[i].next = i + 1 < capacity ? i + 1 : kEnd;
    free_ = capacity == 0 ? kEnd : 0;
  }

  void add(const Record& record) {
    const uint32_t index = free_;
    free_ = nodes_[index].next;
    uint32_t& bucket = buckets_[record.id & (buckets_.size() - 1)];
    nodes_[index] = record;
    nodes_[index].next = bucket;
    bucket = index;
  }

  const Record* find(uint64_t id) const {
    for (uint32_t i = buckets_[id & (buckets_.size() - 1)]; i != kEnd; i = nodes_[i].next) {
      if (nodes_[i].id == id) return &nodes_[i];
    }
    return nullptr;
  }

  void remove(uint64_t id) {
    uint32_t* link = &buckets_[id & (buckets_.size() - 1)];
    while (*link != kEnd && nodes_[*link].id != id) link = &nodes_[*link].next;
    if (*link == kEnd) return;
    const uint32_t index = *link;
    *link = nodes_[index].next;
    nodes_[index].next = free_;
    free_ = index;
  }

  // Calls visit(record) for each; it must not add or remove any.
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (const uint32_t head : buckets_) {
      for (uint32_t i = head; i != kEnd; i = nodes_[i].next) visit(nodes_[i]);
    }
  }

  // Copies of all, oldest first.
  std::vector<Record> oldest_first() {
    std::vector<Record> list;
    for_each([&list](const Record& record) { list.push_back(record); });
    std::sort(list.begin(), list.end(),
              [](const Record& a, const Record& b) { return a.id < b.id; });
    return list;
  }

 private:
  static constexpr uint32_t kEnd = UINT32_MAX;

  std::vector<Record> nodes_;
  std::vector<uint32_t> buckets_;
  uint32_t free_ = kEnd;
};

}  // namespace wherry::detail
