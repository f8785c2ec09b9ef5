#include "tests/support/poller_world.h"

#include <algorithm>
#include <cstring>

#include "tests/support/pattern.h"

namespace wherry::test {
namespace {

uint64_t read_clock(void* now) { return *static_cast<uint64_t*>(now); }

}  // namespace

RawChannel::RawChannel(engine::SessionShared* session, shm::ChannelSizes sizes,
                       const std::string& instance) {
  spec.session = session;
  spec.sizes = sizes;
  spec.instance = instance;
  spec.rank = 3;
  spec.c2e_header = shm::make_header(shm::SegmentKind::kC2e, sizes);
  spec.e2c_header = shm::make_header(shm::SegmentKind::kE2c, sizes);
  c2e_fd_ = std::move(*shm::create_c2e(spec.c2e_header));
  spec.c2e = std::move(
      *shm::MappedSegment::map(c2e_fd_.get(), spec.c2e_header.total_bytes, shm::Access::kRead));
  client_c2e = std::move(*shm::MappedSegment::map(c2e_fd_.get(), spec.c2e_header.total_bytes,
                                                  shm::Access::kReadWrite));
  e2c_segment_ = std::move(*shm::create_e2c(spec.e2c_header));
  spec.e2c = std::move(e2c_segment_.mapping);
  eventfd_ = std::move(*shm::create_eventfd());
  spec.eventfd = eventfd_.get();
  spec.stats = stats_.get();
  writer = shm::RecordWriter(client_c2e.at<shm::Slot>(spec.c2e_header.submission_offset),
                             sizes.submission_slots);
  completions = shm::RecordReader(spec.e2c.at<const shm::Slot>(spec.e2c_header.completion_offset),
                                  sizes.completion_slots());
  if (sizes.notification_slots != 0) {
    notifications =
        shm::RecordReader(spec.e2c.at<const shm::Slot>(spec.e2c_header.notification_offset),
                          sizes.notification_slots);
  }
}

uint64_t RawChannel::publish(shm::SubmitHead head, const std::string& notification,
                             uint32_t extensions) {
  head.notification_bytes = static_cast<uint16_t>(notification.size());
  for (size_t at = 0; at < notification.size(); at += shm::kPayloadBytes) {
    writer.put_extension(extensions++, notification.data() + at,
                         std::min<size_t>(shm::kPayloadBytes, notification.size() - at));
  }
  if (head.slot_count == 0) head.slot_count = static_cast<uint16_t>(1 + extensions);
  const uint64_t id = writer.position() + 1;
  writer.publish(&head, head.slot_count);
  return id;
}

uint64_t RawChannel::transfer(uint64_t source, uint64_t destination,
                              const std::vector<shm::BlockPair>& pairs, shm::SubmitHead head,
                              const std::string& notification) {
  head.op = static_cast<uint8_t>(shm::Op::kTransfer);
  head.source = source;
  head.destination = destination;
  head.pair_count = static_cast<uint32_t>(pairs.size());
  if (!pairs.empty()) head.first_pair = pairs[0];
  uint32_t extensions = 0;
  for (size_t at = 1; at < pairs.size(); at += shm::kEntriesPerSlot) {
    const size_t count = std::min<size_t>(shm::kEntriesPerSlot, pairs.size() - at);
    writer.put_extension(extensions++, &pairs[at], count * sizeof(shm::BlockPair));
  }
  return publish(head, notification, extensions);
}

uint64_t RawChannel::range(uint64_t source, uint64_t destination, shm::RangeEntry range) {
  shm::SubmitHead head{};
  head.op = static_cast<uint8_t>(shm::Op::kRange);
  head.source = source;
  head.destination = destination;
  head.pair_count = 1;
  writer.put_extension(0, &range, sizeof(range));
  return publish(head, "", 1);
}

uint64_t RawChannel::notify(uint64_t target, const std::string& message) {
  shm::SubmitHead head{};
  head.op = static_cast<uint8_t>(shm::Op::kNotify);
  head.destination = target;
  return publish(head, message, 0);
}

void RawChannel::cancel(uint64_t id) {
  words()->cancel_ids[cancels_ % shm::kCancelSlots].store(id, std::memory_order_relaxed);
  words()->cancel_tail.store(++cancels_, std::memory_order_release);
}

std::optional<RawCompletion> RawChannel::reap() {
  if (!completions.ready()) return std::nullopt;
  RawCompletion completion;
  completions.copy_head(&completion.head);
  const uint32_t failed = completion.head.failed_count;
  if (failed != 0) completion.failed.push_back(completion.head.first_failed);
  for (uint32_t i = 1; i < failed; ++i) {
    shm::FailedEntry entries[shm::kEntriesPerSlot];
    completions.copy_extension((i - 1) / shm::kEntriesPerSlot, entries, sizeof(entries));
    completion.failed.push_back(entries[(i - 1) % shm::kEntriesPerSlot]);
  }
  completions.consume(shm::completion_slots(failed));
  words()->reap_cursor.store(completions.position(), std::memory_order_release);
  return completion;
}

std::optional<RawNotification> RawChannel::read_notification() {
  if (!notifications.ready()) return std::nullopt;
  RawNotification notification;
  notifications.copy_head(&notification.head);
  const size_t bytes = size_t{notification.head.name_bytes} + notification.head.message_bytes;
  std::string text(bytes + shm::kPayloadBytes, '\0');
  for (uint32_t i = 0; i + 1 < notification.head.slot_count; ++i) {
    notifications.copy_extension(i, text.data() + size_t{i} * shm::kPayloadBytes,
                                 shm::kPayloadBytes);
  }
  notification.sender = text.substr(0, notification.head.name_bytes);
  notification.message = text.substr(notification.head.name_bytes, notification.head.message_bytes);
  notifications.consume(notification.head.slot_count);
  words()->notification_cursor.store(notifications.position(), std::memory_order_release);
  return notification;
}

PollerWorld::PollerWorld() { add_poller(); }

PollerWorld::~PollerWorld() {
  pollers.clear();
  channels_.clear();
}

engine::Poller* PollerWorld::add_poller() {
  engine::PollerOptions options;
  options.index = static_cast<uint32_t>(pollers.size());
  options.idle = engine::IdleStrategy::kExternal;
  options.clock = read_clock;
  options.clock_context = &now;
  options.transports = {&memory_transport, &null_transport};
  stats.push_back(std::make_unique<shm::PollerStats>());
  options.stats = stats.back().get();
  auto poller = engine::Poller::create(options);
  EXPECT_TRUE(poller.ok());
  pollers.push_back(std::move(*poller));
  return pollers.back().get();
}

engine::Mapping* PollerWorld::memory(uint64_t bytes, uint64_t backing) {
  auto memory = std::make_unique<Memory>();
  memory->bytes.assign(bytes, kGuard);
  memory->mapping = std::make_shared<engine::Mapping>();
  memory->mapping->backing = backing == 0 ? 1000 + memories_.size() : backing;
  memory->mapping->length = bytes;
  memory->mapping->writable = true;
  memory->mapping->base = memory->bytes.data();
  memories_.push_back(std::move(memory));
  return memories_.back()->mapping.get();
}

uint64_t PollerWorld::add_entry(engine::SessionShared* session, std::unique_ptr<engine::View> view,
                                uint8_t rights) {
  view->id = views_.size() + 1;
  for (const engine::Part& part : view->parts) {
    for (const auto& memory : memories_) {
      if (memory->mapping.get() == part.mapping) view->mappings.push_back(memory->mapping);
    }
  }
  engine::finish_view(*view);
  auto table = std::make_unique<engine::ClientTable>(*session->table.load());
  table->entries.push_back({1, rights, view.get()});
  const uint64_t handle = engine::make_handle(1, static_cast<uint32_t>(table->entries.size()) - 1);
  session->table.store(table.get());
  views_.push_back(std::move(view));
  tables_.push_back(std::move(table));
  return handle;
}

uint64_t PollerWorld::layout(engine::SessionShared* session, const Geometry& geometry,
                             const std::vector<engine::Part>& parts, uint8_t rights) {
  EXPECT_TRUE(check_geometry(geometry).ok());
  auto view = std::make_unique<engine::View>();
  view->kind = engine::ViewKind::kLayout;
  view->geometry = geometry;
  view->parts = parts;
  for (const auto& owner : sessions_) {
    if (owner.get() == session) view->owner = owner;
  }
  return add_entry(session, std::move(view), rights);
}

uint64_t PollerWorld::layout_in_new_memory(engine::SessionShared* session,
                                           const Geometry& geometry) {
  constexpr uint64_t kGap = 192;  // guards between parts, so that an overrun by one shows
  const uint32_t count = geometry.part_count();
  engine::Mapping* mapping = memory(kGap + count * (geometry.part_bytes() + kGap));
  std::vector<engine::Part> parts;
  for (uint32_t i = 0; i < count; ++i) {
    engine::Part part;
    part.mapping = mapping;
    part.offset = kGap + i * (geometry.part_bytes() + kGap);
    part.length = geometry.part_bytes();
    parts.push_back(part);
  }
  return layout(session, geometry, parts);
}

uint64_t PollerWorld::region(engine::SessionShared* session, engine::Mapping* mapping,
                             uint8_t rights) {
  auto view = std::make_unique<engine::View>();
  view->kind = engine::ViewKind::kRegion;
  engine::Part part;
  part.mapping = mapping;
  part.length = mapping->length;
  view->parts = {part};
  return add_entry(session, std::move(view), rights);
}

uint64_t PollerWorld::client_handle(engine::SessionShared* session,
                                    const std::shared_ptr<engine::SessionShared>& target) {
  auto view = std::make_unique<engine::View>();
  view->kind = engine::ViewKind::kClient;
  view->owner = target;
  return add_entry(session, std::move(view), 0);
}

void PollerWorld::forget(engine::SessionShared* session, uint64_t handle) {
  auto table = std::make_unique<engine::ClientTable>(*session->table.load());
  table->entries[static_cast<uint32_t>(handle)] = {};
  session->table.store(table.get());
  tables_.push_back(std::move(table));
}

const engine::View& PollerWorld::view(engine::SessionShared* session, uint64_t handle) {
  return *session->table.load()->find(handle)->view;
}

std::shared_ptr<engine::SessionShared> PollerWorld::new_session() {
  auto session = std::make_shared<engine::SessionShared>();
  session->session = sessions_.size() + 1;
  tables_.push_back(std::make_unique<engine::ClientTable>());
  session->table.store(tables_.back().get());
  sessions_.push_back(session);
  return session;
}

RawChannel* PollerWorld::channel(engine::SessionShared* session, shm::ChannelSizes sizes,
                                 uint32_t poller) {
  if (!connected_) {
    std::vector<engine::Poller*> all;
    for (const auto& each : pollers) all.push_back(each.get());
    engine::Poller::connect(all);
    connected_ = true;
  }
  channels_.push_back(std::make_unique<RawChannel>(session, sizes));
  RawChannel* added = channels_.back().get();
  engine::Command command;
  command.kind = engine::Command::Kind::kAddChannel;
  command.channel = &added->spec;
  pollers[poller]->send(command);
  if (sizes.notification_slots != 0) session->notify_poller.store(poller);
  pollers[poller]->poll_once();
  return added;
}

void PollerWorld::turns(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    for (const auto& poller : pollers) poller->poll_once();
  }
}

RawCompletion PollerWorld::completion(RawChannel* channel) {
  for (int i = 0; i < 10'000; ++i) {
    if (auto reaped = channel->reap()) return *reaped;
    turns(1);
  }
  ADD_FAILURE() << "no completion in 10,000 turns";
  return {};
}

std::vector<engine::Report> PollerWorld::reports(uint32_t poller) {
  std::vector<engine::Report> all;
  for (engine::Report report; pollers[poller]->take_report(&report);) all.push_back(report);
  return all;
}

namespace {

template <typename Visit>
void for_each_region(const engine::View& view, uint32_t block, uint32_t first, uint32_t end,
                     const Visit& visit) {
  const Geometry& g = view.geometry;
  for (uint32_t layer = first; layer < std::min(end, g.num_layers); ++layer) {
    for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
      const engine::Part& part = view.parts[part_of(g, block, layer)];
      visit(part.address() + offset_in_part(g, block, layer, outer), layer, outer);
    }
  }
}

}  // namespace

void PollerWorld::fill_layout(engine::SessionShared* session, uint64_t handle, uint64_t seed) {
  const engine::View& v = view(session, handle);
  for (uint32_t block = 0; block < v.geometry.num_blocks; ++block) {
    for_each_region(v, block, 0, UINT32_MAX, [&](std::byte* at, uint32_t layer, uint32_t outer) {
      fill(at, v.geometry.region_bytes(), block, layer, outer, seed);
    });
  }
}

::testing::AssertionResult PollerWorld::holds(engine::SessionShared* session, uint64_t handle,
                                              uint32_t block, uint32_t as, uint64_t seed,
                                              uint32_t first, uint32_t end) {
  const engine::View& v = view(session, handle);
  auto result = ::testing::AssertionSuccess();
  for_each_region(v, block, first, end, [&](const std::byte* at, uint32_t layer, uint32_t outer) {
    const uint64_t bytes = v.geometry.region_bytes();
    const uint64_t difference = first_difference(at, bytes, as, layer, outer, seed);
    if (difference != bytes && result) {
      result = ::testing::AssertionFailure()
               << "block " << block << " layer " << layer << " outer " << outer
               << " differs from block " << as << " at byte " << difference;
    }
  });
  return result;
}

::testing::AssertionResult PollerWorld::guarded(engine::SessionShared* session, uint64_t handle,
                                                uint32_t block, uint32_t first, uint32_t end) {
  const engine::View& v = view(session, handle);
  auto result = ::testing::AssertionSuccess();
  for_each_region(v, block, first, end, [&](const std::byte* at, uint32_t layer, uint32_t outer) {
    for (uint64_t i = 0; i < v.geometry.region_bytes(); ++i) {
      if (at[i] != kGuard && result) {
        result = ::testing::AssertionFailure()
                 << "block " << block << " layer " << layer << " outer " << outer
                 << " was written at byte " << i;
      }
    }
  });
  return result;
}

::testing::AssertionResult PollerWorld::gaps_are_guards() {
  for (const auto& memory : memories_) {
    std::vector<bool> covered(memory->bytes.size());
    for (const auto& v : views_) {
      for (const engine::Part& part : v->parts) {
        if (part.mapping != memory->mapping.get()) continue;
        std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(part.offset), part.length, true);
      }
    }
    for (size_t i = 0; i < covered.size(); ++i) {
      if (!covered[i] && memory->bytes[i] != kGuard) {
        return ::testing::AssertionFailure() << "a guard byte was written, at " << i;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

Geometry small_geometry(LayoutKind kind, uint32_t blocks) {
  Geometry g;
  g.kind = kind;
  g.dtype = DType::kBFloat16;
  g.inner_order = InnerOrder::kNhd;
  g.num_blocks = blocks;
  g.num_layers = 3;
  g.outer_dim = 2;
  g.page_size = 5;
  g.inner_dim = 7;
  return g;
}

}  // namespace wherry::test
