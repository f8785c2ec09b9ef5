// The engine's end of a channel, played by hand: no poller, no thread, no socket.
//
// For unit tests of the client library's channels: a test publishes completions in the order and
// with the contents it likes, marks the in-flight table, and dies at any step.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "clientlib/channel_core.h"
#include "shm/inflight.h"
#include "shm/ring.h"
#include "shm/segment.h"

namespace wherry::test {

// A record as the engine reads it.
struct ReadRecord {
  uint64_t id = 0;
  shm::SubmitHead head{};
  std::vector<shm::BlockPair> pairs;
  shm::RangeEntry range{};
  std::string notification;
};

class FakeEngineEnd {
 public:
  explicit FakeEngineEnd(shm::ChannelSizes channel_sizes) : sizes(channel_sizes) {
    shm::SegmentHeader c2e_header = shm::make_header(shm::SegmentKind::kC2e, sizes);
    shm::SegmentHeader e2c_header = shm::make_header(shm::SegmentKind::kE2c, sizes);
    c2e_fd_ = std::move(shm::create_c2e(c2e_header).value());
    e2c_ = std::move(shm::create_e2c(e2c_header).value());
    c2e_ = std::move(
        shm::MappedSegment::map(c2e_fd_.get(), c2e_header.total_bytes, shm::Access::kRead).value());
    eventfd_ = std::move(shm::create_eventfd().value());
    words = e2c_.mapping.at<shm::EngineWords>(e2c_header.words_offset);
    client = c2e_.at<const shm::ClientWords>(c2e_header.words_offset);
    submissions = shm::RecordReader(c2e_.at<const shm::Slot>(c2e_header.submission_offset),
                                    sizes.submission_slots);
    completions = shm::RecordWriter(e2c_.mapping.at<shm::Slot>(e2c_header.completion_offset),
                                    sizes.completion_slots());
    inflight =
        shm::InflightWriter(e2c_.mapping.at<std::atomic<uint64_t>>(e2c_header.inflight_offset));
    if (sizes.notification_slots != 0) {
      notifications = shm::RecordWriter(e2c_.mapping.at<shm::Slot>(e2c_header.notification_offset),
                                        sizes.notification_slots);
    }
    set_state(shm::ChannelState::kActive);
  }

  // The client's end of it.
  std::unique_ptr<detail::Link> link(shm::UniqueFd wake_socket = {}) {
    detail::LinkParts parts = std::move(detail::map_link(c2e_fd_.get(), e2c_.fd.get()).value());
    parts.eventfd.reset(dup(eventfd_.get()));
    parts.wake_socket = std::move(wake_socket);
    parts.life = life;
    return std::make_unique<detail::Link>(std::move(parts));
  }

  void set_state(shm::ChannelState state) {
    words->state.store(static_cast<uint32_t>(state), std::memory_order_release);
  }
  void die() { life->end(); }

  // Reads the next record, if there is one; the head is published only by publish_head().
  bool read(ReadRecord* record) {
    if (!submissions.ready()) return false;
    record->id = submissions.position() + 1;
    submissions.copy_head(&record->head);
    record->pairs.clear();
    uint32_t extension = 0;
    const auto op = static_cast<shm::Op>(record->head.op);
    if (op == shm::Op::kRange) {
      submissions.copy_extension(extension++, &record->range, sizeof(record->range));
    } else if (record->head.pair_count > 0) {
      record->pairs.push_back(record->head.first_pair);
      while (record->pairs.size() < record->head.pair_count) {
        shm::BlockPair seven[shm::kEntriesPerSlot];
        submissions.copy_extension(extension++, seven, sizeof(seven));
        for (uint32_t i = 0;
             i < shm::kEntriesPerSlot && record->pairs.size() < record->head.pair_count; ++i) {
          record->pairs.push_back(seven[i]);
        }
      }
    }
    record->notification.assign(record->head.notification_bytes, '\0');
    for (uint32_t at = 0; at < record->head.notification_bytes; at += shm::kPayloadBytes) {
      submissions.copy_extension(
          extension++, record->notification.data() + at,
          std::min<uint32_t>(shm::kPayloadBytes, record->head.notification_bytes - at));
    }
    EXPECT_EQ(record->head.slot_count, extension + 1);
    EXPECT_LE(record->head.slot_count, sizes.max_record_slots());
    submissions.consume(record->head.slot_count);
    credits_out_ += record->head.slot_count;
    return true;
  }
  ReadRecord read() {
    ReadRecord record;
    EXPECT_TRUE(read(&record));
    return record;
  }
  void publish_head() {
    words->submission_head.store(submissions.position(), std::memory_order_release);
  }

  // What the engine counts before it takes a record: never above the completion ring.
  uint64_t credits_in_use() const {
    return credits_out_ + completions.position() -
           client->reap_cursor.load(std::memory_order_acquire);
  }

  void complete(const ReadRecord& record, Code code = Code::kOk, uint64_t bytes = 100,
                const std::vector<shm::FailedEntry>& failed = {},
                uint8_t quiet = shm::kLocalQuiet | shm::kRemoteQuiet) {
    shm::CompletionHead head{};
    head.request_id = record.id;
    head.status = static_cast<uint8_t>(code);
    head.bytes = bytes;
    head.quiet = quiet;
    head.transport = 1;
    head.failed_count = static_cast<uint32_t>(failed.size());
    if (!failed.empty()) head.first_failed = failed[0];
    for (size_t at = 1; at < failed.size(); at += shm::kEntriesPerSlot) {
      const size_t count = std::min<size_t>(shm::kEntriesPerSlot, failed.size() - at);
      completions.put_extension(static_cast<uint32_t>((at - 1) / shm::kEntriesPerSlot), &failed[at],
                                count * sizeof(shm::FailedEntry));
    }
    completions.publish(&head, shm::completion_slots(head.failed_count));
    credits_out_ -= record.head.slot_count;
  }

  void deliver(const std::string& sender, uint32_t rank, const std::string& message,
               uint64_t sequence) {
    const std::string text = sender + message;
    shm::NotificationHead head{};
    head.sequence = sequence;
    head.sender_rank = rank;
    head.slot_count =
        static_cast<uint16_t>(shm::record_slots(0, static_cast<uint32_t>(text.size())));
    head.name_bytes = static_cast<uint16_t>(sender.size());
    head.message_bytes = static_cast<uint16_t>(message.size());
    for (size_t at = 0; at < text.size(); at += shm::kPayloadBytes) {
      notifications.put_extension(static_cast<uint32_t>(at / shm::kPayloadBytes), text.data() + at,
                                  std::min<size_t>(shm::kPayloadBytes, text.size() - at));
    }
    notifications.publish(&head, head.slot_count);
  }

  // Rings so far of the client's doorbell.
  uint64_t take_rings() {
    uint64_t rings = 0;
    return ::read(eventfd_.get(), &rings, sizeof(rings)) == sizeof(rings) ? rings : 0;
  }

  const shm::ChannelSizes sizes;
  std::shared_ptr<detail::Life> life = std::make_shared<detail::Life>();
  shm::EngineWords* words = nullptr;
  const shm::ClientWords* client = nullptr;
  shm::RecordReader submissions;
  shm::RecordWriter completions;
  shm::RecordWriter notifications;
  shm::InflightWriter inflight;

 private:
  shm::UniqueFd c2e_fd_;
  shm::E2cSegment e2c_;
  shm::MappedSegment c2e_;
  shm::UniqueFd eventfd_;
  uint64_t credits_out_ = 0;
};

// A channel of the client library on top of it, and a table with two layouts, a region and a
// client.
class FakeChannel : public ::testing::Test {
 protected:
  static constexpr uint32_t kBlocks = 4096;

  FakeChannel() {
    Geometry geometry;
    geometry.num_blocks = kBlocks;
    geometry.num_layers = 4;
    geometry.outer_dim = 2;
    geometry.page_size = 16;
    geometry.inner_dim = 8;
    source = add_layout(geometry, 100);
    destination = add_layout(geometry, 101);
    detail::HandleInfo info;
    info.kind = detail::HandleKind::kRegion;
    info.writable = true;
    info.engine_handle = 102;
    info.total_bytes = 1000;
    region = {table->add(info)};
    info.kind = detail::HandleKind::kClient;
    info.engine_handle = 103;
    peer = {table->add(info)};
  }

  LayoutHandle add_layout(const Geometry& geometry, uint64_t engine_handle, bool writable = true) {
    detail::HandleInfo info;
    info.kind = detail::HandleKind::kLayout;
    info.writable = writable;
    info.engine_handle = engine_handle;
    info.total_bytes = geometry.block_bytes() * geometry.num_blocks;
    info.geometry = geometry;
    return {table->add(info)};
  }

  // Opens the channel; the engine's end is in `engine`.
  void open(uint32_t slots, detail::CoreOptions options = {}, uint32_t notification_slots = 0) {
    engine = std::make_unique<FakeEngineEnd>(shm::ChannelSizes{slots, notification_slots});
    channel = std::move(detail::ChannelCore::create(table, std::move(options)).value());
    channel->offer(engine->link());
  }

  static std::vector<BlockId> ids(uint32_t first, uint32_t count) {
    std::vector<BlockId> list;
    for (uint32_t i = 0; i < count; ++i) list.push_back(first + i);
    return list;
  }

  Result<TransferCompleteNotification> submit(uint32_t first, uint32_t count,
                                              const TransferOptions& options = {}) {
    const std::vector<BlockId> list = ids(first, count);
    return channel->try_transfer(source, destination, list, list, options);
  }

  std::shared_ptr<detail::HandleTable> table = std::make_shared<detail::HandleTable>();
  LayoutHandle source;
  LayoutHandle destination;
  RegionHandle region;
  ClientHandle peer;
  std::unique_ptr<FakeEngineEnd> engine;
  std::shared_ptr<detail::ChannelCore> channel;
};

}  // namespace wherry::test
