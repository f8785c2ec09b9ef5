// Rings, words and memory of a hostile client.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shm/doorbell.h"
#include "shm/segment.h"
#include "tests/fuzz/hostile_client.h"

namespace wherry::fuzz {
namespace {

constexpr uint64_t kPage = 4096;

template <typename Word>
void change(Word& word, Dice& dice) {
  word = static_cast<Word>(dice.number());
}

void change_a_field(shm::SubmitHead& head, Dice& dice) {
  switch (dice.below(14)) {
    case 0:
      return change(head.op, dice);
    case 1:
      return change(head.flags, dice);
    case 2:
      return change(head.priority, dice);
    case 3:
      return change(head.required_transport, dice);
    case 4:
      return change(head.pair_count, dice);
    case 5:
      return change(head.source, dice);
    case 6:
      return change(head.destination, dice);
    case 7:
      return change(head.deadline_ns, dice);
    case 8:
      return change(head.layer_first, dice);
    case 9:
      return change(head.layer_end, dice);
    case 10:
      return change(head.slot_count, dice);
    case 11:
      return change(head.notification_bytes, dice);
    case 12:
      return change(head.first_pair.source, dice);
    default:
      return change(head.reserved, dice);
  }
}

}  // namespace

void HostileClient::act_on_rings() {
  const uint64_t choice = dice_.below(reckless_ ? 10 : 5);
  if (choice < 2) {
    for (uint64_t i = dice_.below(4); i != UINT64_MAX; --i) publish(likely_head());
  }
  if (choice == 2) punch_holes();
  if (choice == 3) cancel();
  if (choice == 4) play_with_futexes();
  if (choice == 5) publish_mutated();
  if (choice == 6) scribble();
  if (choice == 7) rewrite_published();
  if (choice == 8) move_cursors();
  if (choice == 9) hoard();
  if (!reckless_ || dice_.one_in(3)) reap();
}

shm::ClientWords* HostileClient::words() {
  return rings_->c2e.at<shm::ClientWords>(rings_->c2e_header.words_offset);
}

// Unless it has made its own eventfd one that would block it.
void HostileClient::ring() {
  pollfd writable{rings_->eventfd.get(), POLLOUT, 0};
  if (poll(&writable, 1, 0) == 1) shm::ring_eventfd(rings_->eventfd.get());
}

// What the engine takes, if not always as OK.
shm::SubmitHead HostileClient::likely_head() {
  shm::SubmitHead head{};
  head.op = static_cast<uint8_t>(1 + dice_.below(3));
  head.priority = static_cast<uint8_t>(dice_.below(2));
  head.source = dice_.of(handles_);
  head.destination = dice_.of(handles_);
  if (dice_.one_in(8)) head.deadline_ns = dice_.number();
  const auto op = static_cast<shm::Op>(head.op);
  const uint32_t most_pairs = (rings_->c2e_header.submission_slots / 4) * shm::kEntriesPerSlot;
  if (op == shm::Op::kTransfer) {
    // A few ids may all be good ones, of many some is bad.
    head.pair_count = static_cast<uint32_t>(dice_.below(dice_.one_in(2) ? 4 : most_pairs));
  }
  if (op == shm::Op::kRange) head.pair_count = 1;
  if (op == shm::Op::kNotify) {
    head.source = 0;
    head.notification_bytes = static_cast<uint16_t>(dice_.below(100));
  } else {
    head.first_pair = {static_cast<uint32_t>(dice_.below(130)),
                       static_cast<uint32_t>(dice_.below(130))};
    if (dice_.one_in(8)) head.first_pair.destination = static_cast<uint32_t>(dice_.number());
    if (dice_.one_in(8)) head.first_pair.source = static_cast<uint32_t>(dice_.number());
  }
  head.slot_count = static_cast<uint16_t>(
      op == shm::Op::kRange ? 2 : shm::record_slots(head.pair_count, head.notification_bytes));
  return head;
}

// As the head says, or as far as there is room for it. Mostly keeps to the space there is: once it
// has written over what the engine has not read, the engine finds nothing there any more.
void HostileClient::publish(shm::SubmitHead head) {
  const uint32_t ring_slots = rings_->c2e_header.submission_slots;
  const uint32_t slots = std::clamp<uint32_t>(head.slot_count, 1, ring_slots / 4 + 1);
  const auto* engine = rings_->e2c.at<const shm::EngineWords>(rings_->e2c_header.words_offset);
  const auto fits = [&] {
    return rings_->writer.position() + slots - engine->submission_head.load() <= ring_slots;
  };
  for (; patience_ > 0 && !fits(); --patience_) sched_yield();
  if (!fits() && !(reckless_ && dice_.one_in(20))) return;
  for (uint32_t i = 0; i + 1 < slots; ++i) {
    uint64_t entries[shm::kEntriesPerSlot];
    for (uint64_t& entry : entries) {
      // Pairs of block ids, or offsets and a length.
      entry = dice_.below(130) << 32 | dice_.below(130);
      if (static_cast<shm::Op>(head.op) == shm::Op::kRange) entry = dice_.number();
    }
    rings_->writer.put_extension(i, entries, sizeof(entries));
  }
  published_.push_back(rings_->writer.position() + 1);
  rings_->writer.publish(&head, slots);
  ring();
}

void HostileClient::publish_mutated() {
  shm::SubmitHead head = likely_head();
  for (uint64_t i = dice_.below(3); i != UINT64_MAX; --i) change_a_field(head, dice_);
  publish(head);
}

// Anything at all into slots near the position.
void HostileClient::scribble() {
  auto* slots = rings_->c2e.at<shm::Slot>(rings_->c2e_header.submission_offset);
  for (uint64_t i = 1 + dice_.below(8); i != 0; --i) {
    const uint64_t position = rings_->writer.position() + dice_.below(16);
    shm::Slot& slot = slots[position & (rings_->c2e_header.submission_slots - 1)];
    for (std::byte& byte : slot.payload) byte = static_cast<std::byte>(dice_.any());
    if (dice_.one_in(2)) {
      const shm::SubmitHead head = likely_head();
      std::memcpy(slot.payload.data(), &head, sizeof(head));
    }
    slot.sequence.store(dice_.one_in(2) ? position + 1 : dice_.number(), std::memory_order_release);
  }
  ring();
}

// While the engine copies them.
void HostileClient::rewrite_published() {
  auto* slots = rings_->c2e.at<shm::Slot>(rings_->c2e_header.submission_offset);
  const uint64_t begin = rings_->writer.position();
  for (int i = 0; i < 3; ++i) publish(likely_head());
  const uint64_t count =
      std::min<uint64_t>(rings_->writer.position() - begin, rings_->c2e_header.submission_slots);
  if (count == 0) return;
  for (int i = 0; i < 2000; ++i) {
    shm::Slot& slot =
        slots[(begin + dice_.below(count)) & (rings_->c2e_header.submission_slots - 1)];
    const uint64_t word = dice_.number();
    // That with the slot count ends it most of the time.
    constexpr uint64_t kSlotCountWord = 4;
    const uint64_t at = dice_.below(7);
    if (at == kSlotCountWord && !dice_.one_in(100)) continue;
    std::memcpy(slot.payload.data() + at * sizeof(word), &word, sizeof(word));
  }
}

void HostileClient::move_cursors() {
  const uint64_t near = rings_->completions.position() + dice_.below(4) - 1;
  const uint64_t value = dice_.one_in(2) ? near : dice_.number();
  if (dice_.one_in(2)) {
    words()->reap_cursor = value;
  } else {
    words()->notification_cursor = value;
  }
  for (uint64_t i = dice_.below(4); i != 0; --i) publish(likely_head());
}

// More than there are credits for, and a cursor that says otherwise or not.
void HostileClient::hoard() {
  if (dice_.one_in(2)) move_cursors();
  shm::SubmitHead head = likely_head();
  head.op = static_cast<uint8_t>(shm::Op::kTransfer);
  head.pair_count = 0;
  head.notification_bytes = 0;
  head.slot_count = 1;
  for (uint32_t i = 0; i < 200 && i < 3 * rings_->c2e_header.submission_slots; ++i) publish(head);
}

void HostileClient::cancel() {
  shm::ClientWords* const all = words();
  for (std::atomic<uint64_t>& id : all->cancel_ids) {
    id = published_.empty() || dice_.one_in(4) ? dice_.number() : dice_.of(published_);
  }
  all->cancel_tail += dice_.below(8);
  if (reckless_ && dice_.one_in(4)) all->cancel_tail = dice_.number();
  ring();
}

void HostileClient::reap() {
  for (int i = 0; i < 50 && !rings_->completions.ready(); ++i) sched_yield();
  while (const auto completion = rings_->reap()) {
    ++(*findings_)["completion " + test::code_of(*completion)];
  }
}

// The engine only ever wakes the word in e2c, whatever a client does to it or says of it.
void HostileClient::play_with_futexes() {
  auto* const wake = rings_->e2c.at<std::atomic<uint32_t>>(rings_->e2c_header.words_offset +
                                                           offsetof(shm::EngineWords, wake));
  std::atomic<uint32_t>* const own = &words()->sleeping;
  *own = static_cast<uint32_t>(dice_.number());
  if (dice_.one_in(2))
    *own = shm::sleeping_word(wake->load(), static_cast<uint32_t>(dice_.below(4)));
  publish(likely_head());
  static constexpr int kCalls[] = {FUTEX_WAIT,       FUTEX_WAKE,        FUTEX_REQUEUE,
                                   FUTEX_WAKE_OP,    FUTEX_LOCK_PI,     FUTEX_UNLOCK_PI,
                                   FUTEX_TRYLOCK_PI, FUTEX_WAIT_BITSET, FUTEX_CMP_REQUEUE_PI};
  timespec moment{0, 20'000};
  for (int i = 0; i < 4; ++i) {
    auto* const first = dice_.one_in(2) ? wake : own;
    auto* const second = dice_.one_in(2) ? wake : own;
    const int call = dice_.of(kCalls);
    // As a count of those to requeue where it is no time.
    const bool timed = call == FUTEX_WAIT || call == FUTEX_WAIT_BITSET || call == FUTEX_LOCK_PI;
    syscall(SYS_futex, first, call, static_cast<uint32_t>(dice_.below(3)),
            timed ? reinterpret_cast<uintptr_t>(&moment) : dice_.below(3), second,
            static_cast<uint32_t>(dice_.number()));
  }
}

// In what is being copied.
void HostileClient::punch_holes() {
  for (uint64_t i = 1 + dice_.below(3); i != 0; --i) {
    shm::SubmitHead head{};
    head.op = static_cast<uint8_t>(shm::Op::kTransfer);
    head.source = dice_.of(large_);
    head.destination = dice_.of(large_);
    head.pair_count = 1;
    head.slot_count = 1;
    publish(head);
  }
  for (int i = 0; i < 60; ++i) {
    const uint64_t which = dice_.below(memory_.size());
    const bool huge = memory_bytes_[which] > (uint64_t{1} << 20);
    const uint64_t page = huge ? memory_bytes_[which] : kPage;
    const uint64_t pages = memory_bytes_[which] / page;
    const uint64_t first = dice_.below(pages);
    fallocate(memory_[which].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(first * page),
              static_cast<off_t>((1 + dice_.below(pages - first)) * page));
    if (huge) {
      // Takes what has become free, so that the engine finds no page there any more.
      Result<shm::UniqueFd> freed = shm::create_memory("hoard", page, page);
      if (freed.ok()) hoard_.push_back(std::move(*freed));
    }
    [[maybe_unused]] const int refused = ftruncate(memory_[which].get(), 0);
  }
}

}  // namespace wherry::fuzz
