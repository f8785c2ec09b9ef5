#include "engine/poller/scheduler.h"

#include <algorithm>

namespace wherry::engine {
namespace {

constexpr uint32_t kLow = 0;
constexpr uint32_t kHigh = 1;
constexpr uint64_t kLowShare = 10;   // low gets one byte of ten while both wait

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

void Scheduler::leave(Flow* flow) { --flow->channels; }

void Scheduler::push(Flow* flow, Request* request) {
  Flow::Queue& queue = flow->queues[request->priority];
  request->next = nullptr;
  if (queue.tail == nullptr) {
    queue.head = request;
  } else {
    queue.tail->next = request;
  }
  queue.tail = request;
  if (!queue.active) append(request->priority, flow);
}

void Scheduler::remove(Flow* flow, Request* request) {
  Flow::Queue& queue = flow->queues[request->priority];
  Request* previous = nullptr;
  for (Request* at = queue.head; at != nullptr; previous = at, at = at->next) {
    if (at != request) continue;
    (previous == nullptr ? queue.head : previous->next) = at->next;
    if (queue.tail == at) queue.tail = previous;
    at->next = nullptr;
    return;   // an emptied queue leaves the active list when its turn comes
  }
}

void Scheduler::append(uint32_t priority, Flow* flow) {
  Flow::Queue& queue = flow->queues[priority];
  ActiveList& list = active_[priority];
  queue.active = true;
  queue.next_active = nullptr;
  (list.tail == nullptr ? list.head : list.tail->queues[priority].next_active) = flow;
  list.tail = flow;
}

void Scheduler::pop_front(uint32_t priority) {
  ActiveList& list = active_[priority];
  Flow::Queue& queue = list.head->queues[priority];
  list.head = queue.next_active;
  if (list.head == nullptr) list.tail = nullptr;
  queue.active = false;
}

uint32_t Scheduler::pick_priority() {
  if (active_[kHigh].head == nullptr) return kLow;
  if (active_[kLow].head == nullptr) {
    low_owed_ = 0;
    return kHigh;
  }
  return low_owed_ >= kLowShare * quantum_ ? kLow : kHigh;
}

Scheduler::Turn Scheduler::next() {
  while (!empty()) {
    const uint32_t priority = pick_priority();
    Flow* flow = active_[priority].head;
    Flow::Queue& queue = flow->queues[priority];
    if (queue.head == nullptr) {
      queue.deficit = 0;
      pop_front(priority);
      continue;
    }
    if (queue.deficit <= 0) queue.deficit += static_cast<int64_t>(quantum_ * flow->weight);
    if (queue.deficit <= 0) {   // still paying for a run longer than a quantum
      pop_front(priority);
      append(priority, flow);
      continue;
    }
    return {flow, priority, queue.head, queue.deficit};
  }
  return {};
}

void Scheduler::charge(const Turn& turn, uint64_t bytes) {
  turn.flow->queues[turn.priority].deficit -= static_cast<int64_t>(bytes);
  if (turn.priority == kHigh) {
    low_owed_ += bytes;
  } else {
    low_owed_ -= std::min(low_owed_, bytes * kLowShare);
  }
}

void Scheduler::done(const Turn& turn, bool exhausted) {
  Flow::Queue& queue = turn.flow->queues[turn.priority];
  if (exhausted) {
    queue.head = turn.request->next;
    if (queue.head == nullptr) queue.tail = nullptr;
    turn.request->next = nullptr;
  }
  if (queue.head == nullptr) {
    queue.deficit = 0;
    pop_front(turn.priority);
  } else if (queue.deficit <= 0) {
    pop_front(turn.priority);
    append(turn.priority, turn.flow);
  }
}

}  // namespace wherry::engine
