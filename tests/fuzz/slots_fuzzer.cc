// Any bytes as what a client does to its rings and words: nothing but its own memory changes,
// nothing completes twice, its channel closes, and another client is served as ever.
//
// The bytes are a script, so that a corpus can be read. Blanks between tokens do not count; a
// number is one character: a digit, or any other by its code.
//   t SRC DST N (S D)*   publishes a transfer of N block pairs between handles (see handles_)
//   r SRC DST A B N      publishes a range of N bytes, from offset A to offset B
//   n DST N              publishes a notification of N bytes
//   m AT VALUE           byte AT of the next published head becomes VALUE
//   x AT SEQ PAYLOAD     the slot AT behind the position: its sequence word and its 56 bytes
//   w WORD VALUE         a word of the client: c, n, t, s, i or u (see word())
//   k N                  cancels the N-th last request
//   c                    reaps what has completed
//   T N                  N turns of the poller
//   d N                  the clock goes on by 2^N nanoseconds
#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "tests/fuzz/fuzz_check.h"
#include "tests/support/poller_world.h"

namespace wherry::test {
namespace {

using fuzz::check;

constexpr uint64_t kGoodSeed = 11;
constexpr uint32_t kMaxTokens = 2000;

class Script {
 public:
  Script(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  // 0 at the end.
  uint8_t token() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n')) ++at_;
    return at_ == end_ ? 0 : *at_++;
  }
  uint8_t number() {
    const uint8_t c = token();
    return c >= '0' && c <= '9' ? static_cast<uint8_t>(c - '0') : c;
  }
  void raw(void* out, size_t size) {
    const size_t there = std::min(size, static_cast<size_t>(end_ - at_));
    std::memcpy(out, at_, there);
    at_ += there;
  }
  bool done() const { return at_ == end_; }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

class SlotsWorld : public PollerWorld {
 public:
  SlotsWorld() {
    good_ = channel(good_session_.get(), {16, 16});
    source_ =
        layout_in_new_memory(good_session_.get(), small_geometry(LayoutKind::kFullyContiguous));
    destination_ = layout_in_new_memory(good_session_.get(),
                                        small_geometry(LayoutKind::kLayerSeparateBlockSecond));
    fill_layout(good_session_.get(), source_, kGoodSeed);
    bad_ = channel(bad_session_.get(), {16, 16});
    engine::SessionShared* bad = bad_session_.get();
    const Geometry first = small_geometry(LayoutKind::kLayerSeparateBlockFirst);
    handles_.push_back(layout_in_new_memory(bad, small_geometry(LayoutKind::kFullyContiguous)));
    handles_.push_back(layout_in_new_memory(bad, first));
    handles_.push_back(layout_in_new_memory(bad, small_geometry(LayoutKind::kDescriptorList)));
    const engine::View& good_source = view(good_session_.get(), source_);
    handles_.push_back(layout(bad, good_source.geometry, good_source.parts, engine::kRightRead));
    handles_.push_back(region(bad, memory(256)));
    handles_.push_back(client_handle(bad, good_session_));
    handles_.push_back(client_handle(bad, bad_session_));
    handles_.push_back(layout_in_new_memory(bad, first));
    forget(bad, handles_.back());
  }

  void TestBody() override {}

  void act(Script script) {
    for (uint32_t i = 0; i < kMaxTokens && !script.done(); ++i) act_once(script);
  }

  void check_the_rest() {
    engine::Command close;
    close.kind = engine::Command::Kind::kCloseChannel;
    close.channel = &bad_->spec;
    pollers[0]->send(close);
    bool closed = false;
    for (int turn = 0; turn < 10'000 && !closed; ++turn) {
      turns(1);
      for (const engine::Report& report : reports()) {
        closed |= report.kind == engine::Report::Kind::kChannelClosed;
        check(report.channel == &bad_->spec, "only the bad channel is reported");
      }
    }
    check(closed, "the channel closes");
    reap();
    const uint64_t id = good_->transfer(source_, destination_, {{3, 5}, {0, 1}});
    const RawCompletion completion = this->completion(good_);
    check(completion.code() == Code::kOk && completion.head.request_id == id,
          "another client is served");
    engine::SessionShared* good = good_session_.get();
    for (uint32_t block = 0; block < 8; ++block) {
      check(holds(good, source_, block, block, kGoodSeed), "memory that is only to be read stays");
    }
    check(holds(good, destination_, 5, 3, kGoodSeed) && holds(good, destination_, 1, 0, kGoodSeed),
          "another client gets its data");
    check(guarded(good, destination_, 4), "another client's memory stays");
    check(gaps_are_guards(), "nothing is written outside of layouts");
  }

 private:
  uint64_t handle(uint8_t number) const {
    return number < handles_.size() ? handles_[number] : number * uint64_t{0x100000001};
  }

  void publish(shm::SubmitHead head, uint32_t extensions) {
    if (head.slot_count == 0) head.slot_count = static_cast<uint16_t>(1 + extensions);
    auto* bytes = reinterpret_cast<uint8_t*>(&head);
    for (const auto& [at, value] : changes_) bytes[at] = value;
    changes_.clear();
    published_.push_back(bad_->writer.position() + 1);
    bad_->writer.publish(&head, 1 + extensions);
  }

  void transfer(Script& script) {
    shm::SubmitHead head{};
    head.op = static_cast<uint8_t>(shm::Op::kTransfer);
    head.source = handle(script.number());
    head.destination = handle(script.number());
    head.pair_count = script.number();
    uint32_t extensions = 0;
    for (uint32_t i = 0; i < head.pair_count; ++i) {
      shm::BlockPair pair{};
      pair.source = script.number();
      pair.destination = script.number();
      if (i == 0) head.first_pair = pair;
      if (i == 0) continue;
      const uint32_t at = (i - 1) % shm::kEntriesPerSlot;
      if (at == 0) ++extensions;
      pairs_[at] = pair;
      bad_->writer.put_extension(extensions - 1, pairs_, sizeof(pairs_));
    }
    publish(head, extensions);
  }

  void range(Script& script) {
    shm::SubmitHead head{};
    head.op = static_cast<uint8_t>(shm::Op::kRange);
    head.source = handle(script.number());
    head.destination = handle(script.number());
    head.pair_count = 1;
    shm::RangeEntry entry{};
    entry.source_offset = value(script);
    entry.destination_offset = value(script);
    entry.length = value(script);
    bad_->writer.put_extension(0, &entry, sizeof(entry));
    publish(head, 1);
  }

  void notification(Script& script) {
    shm::SubmitHead head{};
    head.op = static_cast<uint8_t>(shm::Op::kNotify);
    head.destination = handle(script.number());
    head.notification_bytes = static_cast<uint16_t>(script.number() * 8);
    const uint32_t extensions = shm::record_slots(0, head.notification_bytes) - 1;
    for (uint32_t i = 0; i < std::min(extensions, 16u); ++i) {
      bad_->writer.put_extension(i, "hello hello hello hello", 23);
    }
    publish(head, extensions);
  }

  // A number that may be at the edge of something.
  uint64_t value(Script& script) {
    const uint8_t c = script.number();
    switch (c) {
      case 'p':
        return bad_->writer.position();
      case 'e':
        return bad_->completions.position();
      case 'E':
        return bad_->completions.position() + 1;
      case 'm':
        return UINT64_MAX;
      case 'h':
        return uint64_t{1} << 63;
      case 'L':
        return uint64_t{1} << 32;
      default:
        return c;
    }
  }

  void slot(Script& script) {
    const uint64_t position = bad_->writer.position() + script.number();
    auto* slots = bad_->client_c2e.at<shm::Slot>(bad_->spec.c2e_header.submission_offset);
    shm::Slot& slot = slots[position % bad_->spec.sizes.submission_slots];
    const uint8_t how = script.number();
    script.raw(slot.payload.data(), slot.payload.size());
    slot.sequence.store(how == 's' ? position + 1 : how, std::memory_order_release);
  }

  void word(Script& script) {
    shm::ClientWords* words = bad_->words();
    const uint8_t which = script.token();
    const uint64_t number = value(script);
    if (which == 'c') words->reap_cursor = number;
    if (which == 'n') words->notification_cursor = number;
    if (which == 't') words->cancel_tail = number;
    if (which == 's') words->sleeping = static_cast<uint32_t>(number);
    if (which == 'i') words->cancel_ids[number % shm::kCancelSlots] = number;
    if (which == 'u') words->submission_tail = number;
  }

  void reap() {
    while (auto reaped = bad_->reap()) {
      check(reaped->head.request_id != 0 && completed_.insert(reaped->head.request_id).second,
            "a request completes once");
      check(reaped->head.failed_count <= 16 * shm::kEntriesPerSlot, "no more fail than there were");
    }
  }

  void act_once(Script& script) {
    switch (script.token()) {
      case 't':
        return transfer(script);
      case 'r':
        return range(script);
      case 'n':
        return notification(script);
      case 'm': {
        const uint32_t at = script.number() % sizeof(shm::SubmitHead);
        changes_.emplace_back(at, script.number());
        return;
      }
      case 'x':
        return slot(script);
      case 'w':
        return word(script);
      case 'k': {
        const size_t back = script.number();
        if (back < published_.size()) bad_->cancel(published_[published_.size() - 1 - back]);
        return;
      }
      case 'c':
        return reap();
      case 'T':
        return turns(script.number() % 32);
      case 'd':
        now += uint64_t{1} << script.number() % 40;
        return;
      default:
        return;
    }
  }

  std::shared_ptr<engine::SessionShared> good_session_ = new_session();
  std::shared_ptr<engine::SessionShared> bad_session_ = new_session();
  RawChannel* good_ = nullptr;
  RawChannel* bad_ = nullptr;
  uint64_t source_ = 0;
  uint64_t destination_ = 0;
  // 0 to 2 layouts of its own, 3 another client's to be read, 4 a region, 5 another client, 6
  // itself, 7 what was freed; others are made up.
  std::vector<uint64_t> handles_;
  std::vector<std::pair<uint32_t, uint8_t>> changes_;
  std::vector<uint64_t> published_;
  std::set<uint64_t> completed_;
  shm::BlockPair pairs_[shm::kEntriesPerSlot] = {};
};

}  // namespace
}  // namespace wherry::test

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ::testing::GTEST_FLAG(throw_on_failure) = true;
  wherry::test::SlotsWorld world;
  world.act({data, size});
  world.check_the_rest();
  return 0;
}
