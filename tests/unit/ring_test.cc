#include "shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace wherry::shm {
namespace {

using Bytes = std::array<std::byte, kPayloadBytes>;

Bytes bytes_of(uint64_t seed) {
  Bytes bytes;
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class Ring : public testing::Test {
 protected:
  void make(uint32_t capacity) {
    capacity_ = capacity;
    slots_ = std::make_unique<Slot[]>(capacity);
    writer_ = RecordWriter(slots_.get(), capacity);
    reader_ = RecordReader(slots_.get(), capacity);
  }

  // A record whose payloads follow from its position.
  void write(uint32_t slot_count) {
    const uint64_t position = writer_.position();
    for (uint32_t i = 0; i + 1 < slot_count; ++i) {
      writer_.put_extension(i, bytes_of(position + 1 + i).data(), kPayloadBytes);
    }
    writer_.publish(bytes_of(position).data(), slot_count);
  }

  // Reads the next record and compares it with what write() makes.
  testing::AssertionResult read(uint32_t slot_count) {
    if (!reader_.ready()) return testing::AssertionFailure() << "no record";
    const uint64_t position = reader_.position();
    Bytes head;
    reader_.copy_head(head.data());
    if (head != bytes_of(position)) return testing::AssertionFailure() << "wrong head";
    for (uint32_t i = 0; i + 1 < slot_count; ++i) {
      Bytes extension;
      reader_.copy_extension(i, extension.data(), kPayloadBytes);
      if (extension != bytes_of(position + 1 + i)) {
        return testing::AssertionFailure() << "wrong extension " << i;
      }
    }
    reader_.consume(slot_count);
    return testing::AssertionSuccess();
  }

  uint32_t capacity_ = 0;
  std::unique_ptr<Slot[]> slots_;
  RecordWriter writer_;
  RecordReader reader_;
};

TEST_F(Ring, AnEmptyOneHasNoRecord) {
  make(8);
  EXPECT_FALSE(reader_.ready());
  EXPECT_EQ(reader_.position(), 0u);
}

TEST_F(Ring, ARecordArrivesOnceWithItsHeadAndItsExtensions) {
  make(8);
  write(3);
  EXPECT_EQ(writer_.position(), 3u);
  reader_.prefetch();
  EXPECT_TRUE(read(3));
  EXPECT_EQ(reader_.position(), 3u);
  EXPECT_FALSE(reader_.ready());
}

TEST_F(Ring, NothingIsVisibleBeforeTheHead) {
  make(16);
  write(2);
  ASSERT_TRUE(read(2));
  for (uint32_t i = 0; i < 4; ++i) {
    writer_.put_extension(i, bytes_of(i).data(), kPayloadBytes);
    EXPECT_FALSE(reader_.ready());
  }
  // The payload of the head is not what makes it visible either.
  std::memcpy(slots_[2].payload.data(), bytes_of(2).data(), kPayloadBytes);
  EXPECT_FALSE(reader_.ready());
  writer_.publish(bytes_of(2).data(), 5);
  EXPECT_TRUE(reader_.ready());
}

TEST_F(Ring, ABuiltRecordChangesOnlyThePayloadsOfItsOwnExtensions) {
  make(16);
  write(4);
  std::array<Bytes, 16> before;
  for (size_t i = 0; i < before.size(); ++i) before[i] = slots_[i].payload;
  writer_.put_extension(1, bytes_of(99).data(), kPayloadBytes);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(slots_[i].payload, i == 6 ? bytes_of(99) : before[i]) << i;
    EXPECT_EQ(slots_[i].sequence.load(), i == 0 ? 1u : 0u) << i;
  }
}

TEST_F(Ring, APartOfAnExtensionCanBeWrittenAndRead) {
  make(8);
  const Bytes bytes = bytes_of(5);
  writer_.put_extension(0, bytes.data(), 24);
  writer_.publish(bytes.data(), 2);
  Bytes out{};
  reader_.copy_extension(0, out.data(), 8);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 8, bytes.begin()));
  EXPECT_EQ(out[8], std::byte{0});
  EXPECT_EQ(slots_[1].payload[24], std::byte{0});
}

TEST_F(Ring, ARecordMayWrapAroundTheEnd) {
  make(8);
  write(6);
  ASSERT_TRUE(read(6));
  write(5);  // slots 6, 7, 0, 1, 2
  EXPECT_EQ(slots_[6].sequence.load(), 7u);
  EXPECT_EQ(slots_[2].payload, bytes_of(10));
  EXPECT_TRUE(read(5));
}

TEST_F(Ring, AFullOneKeepsEveryRecord) {
  make(8);
  write(3);
  write(1);
  write(4);
  EXPECT_TRUE(read(3));
  EXPECT_TRUE(read(1));
  EXPECT_TRUE(read(4));
  // The slot at the position still holds the first lap's word.
  EXPECT_EQ(slots_[0].sequence.load(), 1u);
  EXPECT_FALSE(reader_.ready());
}

TEST_F(Ring, OnlyTheExactSequenceWordCounts) {
  make(8);
  for (int i = 0; i < 3; ++i) {
    write(5);
    ASSERT_TRUE(read(5));
  }
  const uint64_t position = reader_.position();
  std::atomic<uint64_t>& word = slots_[position % 8].sequence;
  for (const uint64_t wrong :
       {uint64_t{0}, position, position + 2, position + 1 - 8, position + 1 + 8, uint64_t{1} << 63,
        UINT64_MAX, (position + 1) | uint64_t{1} << 32}) {
    word.store(wrong);
    EXPECT_FALSE(reader_.ready()) << wrong;
  }
  word.store(position + 1);
  EXPECT_TRUE(reader_.ready());
}

// An extension slot may hold any bytes, and keeps the sequence word of whatever began there before.
TEST_F(Ring, WordsOfFormerLapsInExtensionSlotsNeverLookLikeARecord) {
  for (const uint32_t capacity : {8u, 16u, 64u}) {
    SCOPED_TRACE(capacity);
    make(capacity);
    std::mt19937_64 random(capacity);
    std::vector<uint32_t> written;  // sizes of records not yet read
    uint32_t used = 0;
    for (int step = 0; step < 20'000; ++step) {
      const auto size = static_cast<uint32_t>(1 + random() % (capacity / 4 + 1));
      if (random() % 2 == 0 && used + size <= capacity) {
        write(size);
        written.push_back(size);
        used += size;
      } else if (!written.empty()) {
        ASSERT_TRUE(read(written.front())) << step;
        used -= written.front();
        written.erase(written.begin());
      } else {
        ASSERT_FALSE(reader_.ready()) << step;
      }
    }
  }
}

TEST_F(Ring, EachSideSeesWhatTheOtherHasDoneThroughTheSlotsAlone) {
  make(8);
  write(2);
  RecordReader late(slots_.get(), 8);  // the writer's position is nowhere in the ring
  EXPECT_TRUE(late.ready());
  late.consume(2);
  EXPECT_FALSE(late.ready());
}

TEST(RecordSlots, AreOneForTheHeadAndOneForEachSevenPairsMore) {
  EXPECT_EQ(record_slots(0, 0), 1u);
  EXPECT_EQ(record_slots(1, 0), 1u);
  EXPECT_EQ(record_slots(2, 0), 2u);
  EXPECT_EQ(record_slots(8, 0), 2u);
  EXPECT_EQ(record_slots(9, 0), 3u);
  EXPECT_EQ(record_slots(15, 0), 3u);
  EXPECT_EQ(record_slots(16, 0), 4u);
  EXPECT_EQ(record_slots(0, 1), 2u);
  EXPECT_EQ(record_slots(2, 56), 3u);
  EXPECT_EQ(record_slots(2, 57), 4u);
  EXPECT_EQ(record_slots(0, kMaxNotificationBytes), 1u + 19u);
}

TEST(RecordSlots, OfACompletionAreNeverMoreThanThoseOfItsRecord) {
  for (uint32_t pairs = 0; pairs < 2000; ++pairs) {
    for (const uint32_t failed : {0u, pairs / 2, pairs}) {
      ASSERT_LE(completion_slots(failed), record_slots(pairs, 0)) << pairs << " " << failed;
    }
  }
}

}  // namespace
}  // namespace wherry::shm
