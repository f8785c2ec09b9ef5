// The scheduler: whose runs go next.
//
// Deficit round robin in bytes between clients (a flow is one session on this poller), two
// priorities: high goes first, but low gets a tenth of the bytes while both wait. Requests of one
// flow and priority go in order. Who has had nothing to move for a whole round goes before the
// round, with one quantum: a small request now and then does not wait for others' large ones.
// Poller thread only; flows live in a fixed table; nothing is allocated after creation.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/poller/request.h"

namespace wherry::engine {

inline constexpr uint32_t kPriorities = 2;

struct Flow {
  uint64_t session = 0;
  uint32_t channels = 0;  // 0: free
  uint32_t weight = 1;
  struct Queue {
    Request* head = nullptr;
    Request* tail = nullptr;
    int64_t deficit = 0;  // bytes it may still move in this round
    Flow* next_active = nullptr;
    bool active = false;  // in one of the lists
    bool fresh = false;   // in the list of those that go first
  };
  Queue queues[kPriorities];
};

class Scheduler {
 public:
  explicit Scheduler(uint64_t quantum_bytes, uint32_t max_flows = 1024)
      : quantum_(quantum_bytes), flows_(max_flows) {}

  // The flow of a session, made when there is none; null when all are taken. Counts one channel
  // more.
  Flow* join(uint64_t session, uint32_t weight);
  // One channel less. The flow's queues must be empty of that channel's requests.
  void leave(Flow* flow);

  void push(Flow* flow, Request* request);

  // Takes out a queued request, wherever it stands; nothing happens when it is not queued.
  void remove(Flow* flow, Request* request);

  bool empty() const { return !waits(0) && !waits(1); }

  // The flow and priority that may go now, and how many bytes; null when nothing is queued. The
  // caller moves runs of the flow's first request, says charge() for each and done() at the end of
  // its go.
  struct Turn {
    Flow* flow = nullptr;
    uint32_t priority = 0;
    Request* request = nullptr;
    int64_t bytes = 0;
  };
  Turn next();
  void charge(const Turn& turn, uint64_t bytes);
  // `exhausted`: the turn's request has no more runs and leaves the queue.
  void done(const Turn& turn, bool exhausted);

 private:
  struct ActiveList {
    Flow* head = nullptr;
    Flow* tail = nullptr;
  };
  bool waits(uint32_t priority) const {
    return fresh_[priority].head != nullptr || round_[priority].head != nullptr;
  }
  // The list that goes first.
  ActiveList& front_list(uint32_t priority) {
    return fresh_[priority].head != nullptr ? fresh_[priority] : round_[priority];
  }
  static void append(ActiveList& list, uint32_t priority, Flow* flow);
  static void pop_front(ActiveList& list, uint32_t priority);
  static void unlink(ActiveList& list, uint32_t priority, Flow* flow);
  void to_the_end(uint32_t priority);
  uint32_t pick_priority();

  uint64_t quantum_;
  std::vector<Flow> flows_;
  ActiveList fresh_[kPriorities];
  ActiveList round_[kPriorities];
  // How far low is behind its tenth, in bytes of high (ahead: negative). 0 unless both wait.
  int64_t low_owed_ = 0;
};

}  // namespace wherry::engine
