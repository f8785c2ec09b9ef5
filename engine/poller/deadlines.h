// Deadlines: the requests in flight of one poller, soonest first.
//
// An indexed binary heap whose capacity is reserved when channels are added; push, remove and the
// look at the first are all a poller does. Poller thread only, except reserve().
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/poller/request.h"

namespace wherry::engine {

class Deadlines {
 public:
  // Makes room, so that push never allocates.
  void reserve(size_t count) { heap_.reserve(count); }
  size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }
  Request* first() const { return heap_.front(); }

  void push(Request* request) {
    heap_.push_back(request);
    sift_up(static_cast<uint32_t>(heap_.size()) - 1);
  }

  // Takes out a request, wherever it stands; nothing happens when it is not in.
  void remove(Request* request) {
    const uint32_t hole = request->heap_index;
    if (hole == kNone) return;
    request->heap_index = kNone;
    Request* last = heap_.back();
    heap_.pop_back();
    if (last == request) return;
    put(hole, last);
    sift_up(hole);
    sift_down(last->heap_index);
  }

 private:
  void put(uint32_t index, Request* request) {
    heap_[index] = request;
    request->heap_index = index;
  }

  void sift_up(uint32_t index) {
    Request* request = heap_[index];
    while (index > 0) {
      const uint32_t parent = (index - 1) / 2;
      if (heap_[parent]->deadline_ns <= request->deadline_ns) break;
      put(index, heap_[parent]);
      index = parent;
    }
    put(index, request);
  }

  void sift_down(uint32_t index) {
    Request* request = heap_[index];
    for (;;) {
      uint32_t child = 2 * index + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1]->deadline_ns < heap_[child]->deadline_ns)
        ++child;
      if (request->deadline_ns <= heap_[child]->deadline_ns) break;
      put(index, heap_[child]);
      index = child;
    }
    put(index, request);
  }

  std::vector<Request*> heap_;
};

}  // namespace wherry::engine
