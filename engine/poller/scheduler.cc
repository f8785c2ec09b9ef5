#include "engine/poller/scheduler.h"

#include <algorithm>

namespace wherry::engine {
namespace {

constexpr uint32_t kLow = 0;
constexpr uint32_t kHigh = 1;
constexpr int64_t kHighPerLow = 9;  // nine bytes of ten are high's while both wait

// Nobody saves up bytes while it has nothing to move, and nobody gets rid of what a long run took
// in advance by sending requests one at a time.
void leave_round(Flow::Queue& queue) { queue.deficit = std::min<int64_t>(queue.deficit, 0); }

}  // namespace

Flow* Scheduler::join(uint64_t session, uint32_t weight) {
  Flow* unused = nullptr;
  for (Flow& flow : flows_) {
    if (flow.channels != 0 && flow.session == session) {
      ++flow.channels;
      return &flow;
    }
    if (flow.channels == 0 && unused == nullptr) unused = &flow;
  }
  if (unused == nullptr) return nullptr;
  *unused = Flow{};
  unused->session = session;
  unused->weight = std::max(weight, 1u);
  unused->channels = 1;
  return unused;
}

void Scheduler::leave(Flow* flow) {
  if (--flow->channels != 0) return;
  // An emptied queue may still wait for its turn to be passed over; its place may be taken before.
  for (const uint32_t priority : {kLow, kHigh}) {
    unlink(fresh_[priority], priority, flow);
    unlink(round_[priority], priority, flow);
  }
}

void Scheduler::push(Flow* flow, Request* request) {
  Flow::Queue& queue = flow->queues[request->priority];
  request->next = nullptr;
  if (queue.tail == nullptr) {
    queue.head = request;
  } else {
    queue.tail->next = request;
  }
  queue.tail = request;
  if (queue.active) return;
  queue.fresh = true;
  append(fresh_[request->priority], request->priority, flow);
}

void Scheduler::remove(Flow* flow, Request* request) {
  Flow::Queue& queue = flow->queues[request->priority];
  Request* previous = nullptr;
  for (Request* at = queue.head; at != nullptr; previous = at, at = at->next) {
    if (at != request) continue;
    (previous == nullptr ? queue.head : previous->next) = at->next;
    if (queue.tail == at) queue.tail = previous;
    at->next = nullptr;
    return;  // an emptied queue leaves its list when its turn comes
  }
}

void Scheduler::append(ActiveList& list, uint32_t priority, Flow* flow) {
  Flow::Queue& queue = flow->queues[priority];
  queue.active = true;
  queue.next_active = nullptr;
  (list.tail == nullptr ? list.head : list.tail->queues[priority].next_active) = flow;
  list.tail = flow;
}

void Scheduler::pop_front(ActiveList& list, uint32_t priority) {
  Flow::Queue& queue = list.head->queues[priority];
  list.head = queue.next_active;
  if (list.head == nullptr) list.tail = nullptr;
  queue.active = false;
  queue.fresh = false;
}

void Scheduler::unlink(ActiveList& list, uint32_t priority, Flow* flow) {
  Flow* previous = nullptr;
  for (Flow* at = list.head; at != nullptr; previous = at, at = at->queues[priority].next_active) {
    if (at != flow) continue;
    Flow* next = at->queues[priority].next_active;
    (previous == nullptr ? list.head : previous->queues[priority].next_active) = next;
    if (list.tail == at) list.tail = previous;
    at->queues[priority].active = false;
    return;
  }
}

// The flow whose turn it is has had it.
void Scheduler::to_the_end(uint32_t priority) {
  ActiveList& list = front_list(priority);
  Flow* flow = list.head;
  pop_front(list, priority);
  append(round_[priority], priority, flow);
}

uint32_t Scheduler::pick_priority() {
  if (!waits(kHigh) || !waits(kLow)) {
    low_owed_ = 0;
    return waits(kHigh) ? kHigh : kLow;
  }
  return low_owed_ >= kHighPerLow * static_cast<int64_t>(quantum_) ? kLow : kHigh;
}

Scheduler::Turn Scheduler::next() {
  while (!empty()) {
    const uint32_t priority = pick_priority();
    ActiveList& list = front_list(priority);
    Flow* flow = list.head;
    Flow::Queue& queue = flow->queues[priority];
    if (queue.head == nullptr) {
      if (queue.fresh) {
        to_the_end(priority);
      } else {
        leave_round(queue);
        pop_front(list, priority);
      }
      continue;
    }
    if (queue.deficit <= 0) queue.deficit += static_cast<int64_t>(quantum_ * flow->weight);
    if (queue.deficit <= 0) {  // still paying for a run longer than a quantum
      to_the_end(priority);
      continue;
    }
    return {flow, priority, queue.head, queue.deficit};
  }
  return {};
}

void Scheduler::charge(const Turn& turn, uint64_t bytes) {
  const auto moved = static_cast<int64_t>(bytes);
  turn.flow->queues[turn.priority].deficit -= moved;
  low_owed_ += turn.priority == kHigh ? moved : -moved * kHighPerLow;
}

void Scheduler::done(const Turn& turn, bool exhausted) {
  Flow::Queue& queue = turn.flow->queues[turn.priority];
  if (exhausted) {
    queue.head = turn.request->next;
    if (queue.head == nullptr) queue.tail = nullptr;
    turn.request->next = nullptr;
  }
  // An emptied queue stays in the round until its turn comes again: who refills it meanwhile waits
  // for that turn and is not fresh.
  if (queue.head == nullptr || queue.deficit <= 0) to_the_end(turn.priority);
}

}  // namespace wherry::engine
