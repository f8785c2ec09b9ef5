// A writer and a reader in two processes: every record arrives whole and in order, and a writer
// that is killed at a random instruction leaves nothing half published.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "shm/ring.h"
#include "tests/support/counts.h"
#include "tests/support/pattern.h"
#include "tests/support/two_processes.h"

namespace wherry::test {
namespace {

using Words = std::array<uint64_t, 7>;
static_assert(sizeof(Words) == shm::kPayloadBytes);

// What slot `index` of the record at `position` holds; the first word of the head is the slot
// count.
Words words_of(uint64_t seed, uint64_t position, uint32_t index) {
  Words words;
  for (uint64_t i = 0; i < words.size(); ++i) {
    words[i] = mix(seed ^ position * 0x9e3779b97f4a7c15u ^ index << 8 ^ i);
  }
  return words;
}

uint32_t slots_of(uint64_t seed, uint64_t position, uint32_t most) {
  const uint64_t random = mix(seed + position);
  // Mostly small ones, and each size up to the largest.
  return static_cast<uint32_t>(1 + random % (random >> 62 == 0 ? most : std::min(most, 3u)));
}

class Writer {
 public:
  Writer(const ClientEnd& end, const shm::SegmentHeader& header, uint64_t seed)
      : end_(end),
        seed_(seed),
        capacity_(header.submission_slots),
        most_(shm::ChannelSizes{capacity_, 0}.max_record_slots()),
        writer_(end.c2e.at<shm::Slot>(header.submission_offset), capacity_) {}

  // False when the reader frees nothing for two minutes.
  bool write() {
    const uint64_t position = writer_.position();
    const uint32_t slots = slots_of(seed_, position, most_);
    Patience patience;
    while (position + slots - head_ > capacity_) {
      head_ = end_.engine->submission_head.load(std::memory_order_acquire);
      if (position + slots - head_ <= capacity_) break;
      patience.wait();
      if (patience.hung()) return false;
    }
    for (uint32_t i = 1; i < slots; ++i) {
      const Words words = words_of(seed_, position, i);
      writer_.put_extension(i - 1, words.data(), sizeof(words));
    }
    Words head = words_of(seed_, position, 0);
    head[0] = slots;
    writer_.publish(head.data(), slots);
    return true;
  }

 private:
  const ClientEnd& end_;
  const uint64_t seed_;
  const uint32_t capacity_;
  const uint32_t most_;
  shm::RecordWriter writer_;
  uint64_t head_ = 0;
};

class Reader {
 public:
  Reader(TwoProcesses& both, uint64_t seed)
      : both_(both),
        seed_(seed),
        capacity_(both.c2e_header.submission_slots),
        most_(shm::ChannelSizes{capacity_, 0}.max_record_slots()),
        reader_(both.c2e.at<const shm::Slot>(both.c2e_header.submission_offset), capacity_) {}

  bool ready() const { return reader_.ready(); }
  uint64_t position() const { return reader_.position(); }

  // Checks the record at the position, word by word, and steps over it.
  testing::AssertionResult read() {
    const uint64_t position = reader_.position();
    const uint32_t slots = slots_of(seed_, position, most_);
    Words expected = words_of(seed_, position, 0);
    expected[0] = slots;
    Words words;
    reader_.copy_head(words.data());
    if (words != expected) return testing::AssertionFailure() << "torn head at " << position;
    for (uint32_t i = 1; i < slots; ++i) {
      reader_.copy_extension(i - 1, words.data(), sizeof(words));
      if (words != words_of(seed_, position, i)) {
        return testing::AssertionFailure()
               << "torn record at " << position << ", slot " << i << " of " << slots;
      }
    }
    reader_.consume(slots);
    if (reader_.position() - published_ >= capacity_ / 8) publish_head();
    return testing::AssertionSuccess();
  }

  void publish_head() {
    published_ = reader_.position();
    both_.words->submission_head.store(published_, std::memory_order_release);
  }

  // Reads `count` records, waiting for them.
  void read_many(uint64_t count) {
    Patience patience;
    for (uint64_t i = 0; i < count;) {
      if (!reader_.ready()) {
        publish_head();
        patience.wait();
        ASSERT_FALSE(patience.hung()) << "no record after position " << reader_.position();
        continue;
      }
      patience.moved();
      ASSERT_TRUE(read());
      ++i;
    }
    publish_head();
  }

 private:
  TwoProcesses& both_;
  const uint64_t seed_;
  const uint32_t capacity_;
  const uint32_t most_;
  shm::RecordReader reader_;
  uint64_t published_ = 0;
};

TEST(RingStress, EveryRecordArrivesWholeAndInOrder) {
  const uint64_t records = counted(1'000'000);
  for (const uint32_t capacity : {8u, 64u, 1024u}) {
    SCOPED_TRACE("slots " + std::to_string(capacity));
    TwoProcesses both({capacity, 0});
    ASSERT_NO_FATAL_FAILURE(both.start_client([&](const ClientEnd& end) {
      Writer writer(end, both.c2e_header, capacity);
      for (uint64_t i = 0; i < records; ++i) {
        if (!writer.write()) return 3;
      }
      return 0;
    }));
    Reader reader(both, capacity);
    ASSERT_NO_FATAL_FAILURE(reader.read_many(records));
    EXPECT_EQ(both.child.wait(), "exit 0");
    EXPECT_FALSE(reader.ready());
  }
}

TEST(RingStress, AWriterKilledAtAnyInstructionLeavesNoTornRecord) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const uint64_t kills = counted(100);
  for (uint64_t kill = 0; kill < kills; ++kill) {
    const uint32_t capacity = 8u << random() % 7;
    SCOPED_TRACE("kill " + std::to_string(kill) + ", slots " + std::to_string(capacity));
    TwoProcesses both({capacity, 0});
    ASSERT_NO_FATAL_FAILURE(both.start_client([&](const ClientEnd& end) {
      Writer writer(end, both.c2e_header, kill);
      while (writer.write()) {
      }
      return 3;
    }));
    Reader reader(both, kill);
    ASSERT_NO_FATAL_FAILURE(reader.read_many(random() % 3000));
    both.child.kill_and_wait();
    EXPECT_EQ(both.child.wait(), "signal 9");
    // What was published before is there, and nothing behind it.
    const uint64_t dead_at = reader.position();
    while (reader.ready()) {
      ASSERT_TRUE(reader.read());
      ASSERT_LE(reader.position() - dead_at, capacity);
    }
  }
}

}  // namespace
}  // namespace wherry::test
