// A poller with everything around it made by hand: memory, views, tables, raw channels, a clock.
//
// For unit tests of the data plane: no control thread, no socket, no client library. The poller is
// `external`: tests drive it turn by turn.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/poller/poller.h"
#include "engine/transport/memory/memory_transport.h"
#include "engine/transport/null/null_transport.h"
#include "shm/doorbell.h"
#include "shm/ring.h"

namespace wherry::test {

// A completion as a client would read it.
struct RawCompletion {
  shm::CompletionHead head;
  std::vector<shm::FailedEntry> failed;
  Code code() const { return static_cast<Code>(head.status); }
};

struct RawNotification {
  shm::NotificationHead head;
  std::string sender;
  std::string message;
};

// The client's end of a channel, without any of the client library's care.
class RawChannel {
 public:
  RawChannel(engine::SessionShared* session, shm::ChannelSizes sizes,
             const std::string& instance = "raw");

  engine::ChannelSpec spec;
  shm::MappedSegment client_c2e;
  shm::RecordWriter writer;
  shm::RecordReader completions;
  shm::RecordReader notifications;
  shm::ClientWords* words() {
    return client_c2e.at<shm::ClientWords>(spec.c2e_header.words_offset);
  }
  const shm::EngineWords* engine_words() {
    return spec.e2c.at<const shm::EngineWords>(spec.e2c_header.words_offset);
  }
  const std::atomic<uint64_t>* inflight() {
    return spec.e2c.at<const std::atomic<uint64_t>>(spec.e2c_header.inflight_offset);
  }

  // Publishes a record; returns its request id.
  uint64_t transfer(uint64_t source, uint64_t destination, const std::vector<shm::BlockPair>& pairs,
                    shm::SubmitHead head = {}, const std::string& notification = "");
  uint64_t range(uint64_t source, uint64_t destination, shm::RangeEntry range);
  uint64_t notify(uint64_t target, const std::string& message);
  void cancel(uint64_t id);

  std::optional<RawCompletion> reap();  // and gives the credits back
  std::optional<RawNotification> read_notification();

 private:
  uint64_t publish(shm::SubmitHead head, const std::string& notification, uint32_t extensions);
  shm::UniqueFd c2e_fd_;
  shm::E2cSegment e2c_segment_;
  shm::UniqueFd eventfd_;
  std::unique_ptr<shm::ChannelStats> stats_ = std::make_unique<shm::ChannelStats>();
  uint64_t cancels_ = 0;
};

class PollerWorld : public ::testing::Test {
 protected:
  PollerWorld();
  ~PollerWorld() override;

  // A piece of memory with guard bytes all over it, backing number `backing`.
  engine::Mapping* memory(uint64_t bytes, uint64_t backing = 0);
  // A layout over parts of memory, made known to `session` with these rights; returns its handle.
  uint64_t layout(engine::SessionShared* session, const Geometry& geometry,
                  const std::vector<engine::Part>& parts,
                  uint8_t rights = engine::kRightRead | engine::kRightWrite);
  // Memory for a whole layout of this geometry, parts with guards between; returns its handle.
  uint64_t layout_in_new_memory(engine::SessionShared* session, const Geometry& geometry);
  uint64_t region(engine::SessionShared* session, engine::Mapping* mapping,
                  uint8_t rights = engine::kRightRead | engine::kRightWrite);
  // A handle by which `session` may notify `target`.
  uint64_t client_handle(engine::SessionShared* session,
                         const std::shared_ptr<engine::SessionShared>& target);
  // Takes a handle away.
  void forget(engine::SessionShared* session, uint64_t handle);
  const engine::View& view(engine::SessionShared* session, uint64_t handle);

  std::shared_ptr<engine::SessionShared> new_session();
  // A poller beside the first; all are connected when the first channel is added.
  engine::Poller* add_poller();
  RawChannel* channel(engine::SessionShared* session, shm::ChannelSizes sizes = {64, 64},
                      uint32_t poller = 0);
  void turns(uint32_t count = 4);
  // Turns until the channel has a completion (bounded).
  RawCompletion completion(RawChannel* channel);
  std::vector<engine::Report> reports(uint32_t poller = 0);

  void fill_layout(engine::SessionShared* session, uint64_t handle, uint64_t seed);
  // Whether the block of a layout holds block `as` of the pattern, layers [first, end).
  ::testing::AssertionResult holds(engine::SessionShared* session, uint64_t handle, uint32_t block,
                                   uint32_t as, uint64_t seed, uint32_t first = 0,
                                   uint32_t end = UINT32_MAX);
  ::testing::AssertionResult guarded(engine::SessionShared* session, uint64_t handle,
                                     uint32_t block, uint32_t first = 0, uint32_t end = UINT32_MAX);
  // Every byte outside any part of any layout is still a guard byte.
  ::testing::AssertionResult gaps_are_guards();

  uint64_t now = 1'000'000'000;
  engine::MemoryTransport memory_transport{{16 * 1024, 0, 1}};
  engine::NullTransport null_transport;
  std::vector<std::unique_ptr<engine::Poller>> pollers;
  std::vector<std::unique_ptr<shm::PollerStats>> stats;

 private:
  uint64_t add_entry(engine::SessionShared* session, std::unique_ptr<engine::View> view,
                     uint8_t rights);

  struct Memory {
    std::vector<std::byte> bytes;
    std::shared_ptr<engine::Mapping> mapping;
  };
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<std::unique_ptr<engine::View>> views_;
  std::vector<std::unique_ptr<engine::ClientTable>> tables_;
  std::vector<std::shared_ptr<engine::SessionShared>> sessions_;
  std::vector<std::unique_ptr<RawChannel>> channels_;
  bool connected_ = false;
};

// The four kinds of layout at one small geometry with no two dimensions alike.
Geometry small_geometry(LayoutKind kind, uint32_t blocks = 8);

}  // namespace wherry::test
