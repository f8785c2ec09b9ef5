// Channels: made and offered, polled once the client has mapped them, closed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "engine/control/session.h"
#include "shm/doorbell.h"
#include "shm/segment.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace wherry::engine {
namespace {

constexpr uint32_t kChannelsPerPoller = 4096;
constexpr uint32_t kStalledBeats = 10;  // without a reaped completion: about a second

Result<shm::UniqueFd> duplicate(int fd) {
  shm::UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return errno_status(Code::kNoResources, "duplicating a descriptor", errno);
  return copy;
}

Status no_channel(uint32_t channel, const char* wanted) {
  return {Code::kInvalidArgument, std::string("channel: wanted the number of one that is ") +
                                      wanted + ", got " + std::to_string(channel) +
                                      "; use the number from the reply to open_channel"};
}

}  // namespace

Result<shm::ChannelSizes> Session::channel_sizes(const OpenChannel& message) const {
  bool first = true;
  for (const auto& [index, record] : channels_) {
    if (record->spec.sizes.notification_slots != 0) first = false;
  }
  const ChannelsConfig& defaults = context_->config.channels;
  shm::ChannelSizes sizes{message.submission_slots, message.notification_slots};
  if (sizes.submission_slots == OpenChannel::kDefault)
    sizes.submission_slots = defaults.submission_slots;
  if (sizes.notification_slots == OpenChannel::kDefault) {
    sizes.notification_slots = first ? defaults.notification_slots : 0;
  }
  if (sizes.notification_slots != 0 && !first) {
    return Status(Code::kInvalidArgument,
                  "notification slots: wanted 0, since an earlier channel of "
                  "this client has the notification ring, got " +
                      std::to_string(sizes.notification_slots) + "; ask for none");
  }
  if (Status status = shm::check_sizes(sizes); !status.ok()) return status;
  for (const uint32_t slots : {message.submission_slots, message.notification_slots}) {
    if (slots == OpenChannel::kDefault || slots <= limits_.submission_slots) continue;
    return Status(Code::kNoResources, "limits.submission_slots: wanted a ring of at most " +
                                          std::to_string(limits_.submission_slots) +
                                          " slots, got " + std::to_string(slots) +
                                          "; ask for less or raise the limit");
  }
  return sizes;
}

void Session::on(ReplyTo to, const OpenChannel& message) {
  if (channels_.size() >= limits_.channels_per_client) {
    return refuse(
        to, limit_reached("channels_per_client", limits_.channels_per_client, channels_.size()));
  }
  Result<shm::ChannelSizes> sizes = channel_sizes(message);
  if (!sizes.ok()) return refuse(to, sizes.status());
  uint32_t index = 0;
  while (channels_.count(index) != 0) ++index;
  auto record = std::make_shared<ChannelRecord>();
  ChannelSpec& spec = record->spec;
  spec.session = shared_.get();
  spec.channel = index;
  spec.sizes = *sizes;
  spec.clock_offset_ns = identity_.clock_offset_ns;
  spec.instance = identity_.instance;
  spec.rank = identity_.rank;
  for (shm::SegmentHeader* header : {&spec.c2e_header, &spec.e2c_header}) {
    const bool c2e = header == &spec.c2e_header;
    *header = shm::make_header(c2e ? shm::SegmentKind::kC2e : shm::SegmentKind::kE2c, spec.sizes);
    header->features = identity_.features;
    header->engine_incarnation = context_->incarnation;
    header->session = identity_.session;
    header->channel = index;
  }
  channels_.emplace(index, record);
  update_row();
  begin_work();
  auto made = std::make_shared<Status>();
  context_->registrar->run(
      identity_.session,
      [record, made, descriptor = message.descriptor] {
        *made = make_channel(*record, descriptor);
      },
      [self = shared_from_this(), to, record, made]() mutable {
        self->channel_made(to, std::move(record), *made);
        self->end_work();
      });
}

// Registrar: all pages of large rings and pools are touched here.
Status Session::make_channel(ChannelRecord& record, bool wants_descriptor) {
  ChannelSpec& spec = record.spec;
  Result<shm::UniqueFd> c2e = shm::create_c2e(spec.c2e_header);
  if (!c2e.ok()) return c2e.status();
  Result<shm::MappedSegment> mapped =
      shm::MappedSegment::map(c2e->get(), spec.c2e_header.total_bytes, shm::Access::kRead);
  if (!mapped.ok()) return mapped.status();
  Result<shm::E2cSegment> e2c = shm::create_e2c(spec.e2c_header);
  if (!e2c.ok()) return e2c.status();
  Result<shm::UniqueFd> eventfd = shm::create_eventfd();
  if (!eventfd.ok()) return eventfd.status();
  spec.c2e = std::move(*mapped);
  spec.e2c = std::move(e2c->mapping);
  // No page faults on the poller. A refusal costs just these.
  madvise(spec.c2e.data(), spec.c2e.size(), MADV_POPULATE_READ);
  madvise(spec.e2c.data(), spec.e2c.size(), MADV_POPULATE_WRITE);

  Result<shm::UniqueFd> clients_c2e = duplicate(c2e->get());
  if (!clients_c2e.ok()) return clients_c2e.status();
  Result<shm::UniqueFd> clients_eventfd = duplicate(eventfd->get());
  if (!clients_eventfd.ok()) return clients_eventfd.status();
  record.to_client.push_back(std::move(*clients_c2e));
  record.to_client.push_back(std::move(e2c->fd));
  record.to_client.push_back(std::move(*clients_eventfd));
  record.c2e = std::move(*c2e);
  record.eventfd = std::move(*eventfd);
  spec.eventfd = record.eventfd.get();
  if (wants_descriptor) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
      return errno_status(Code::kNoResources, "making a channel's wake-up descriptor", errno);
    }
    record.wake_socket.reset(pair[0]);
    record.to_client.emplace_back(pair[1]);
    spec.wake_socket = pair[0];
  }
  record.prepared = Poller::prepare(&spec);
  return {};
}

void Session::channel_made(ReplyTo to, std::shared_ptr<ChannelRecord> record,
                           const Status& status) {
  if (status.ok() && state_ == State::kActive) {
    record->state = ChannelRecord::State::kOffered;
    return reply(channel_reply(to, record->spec.channel), std::exchange(record->to_client, {}));
  }
  channels_.erase(record->spec.channel);
  update_row();
  refuse(to, !status.ok() ? status
                          : Status(Code::kAborted,
                                   "open_channel: wanted an active session, got one that is "
                                   "ending; attach again"));
  take_down(std::move(record), [] {});
}

void Session::withdraw_offer(Channels::iterator offered, std::function<void()> done) {
  std::shared_ptr<ChannelRecord> record = std::move(offered->second);
  channels_.erase(offered);
  update_row();
  take_down(std::move(record), std::move(done));
}

// Unmapping rings and freeing pools takes as long as making them.
void Session::take_down(std::shared_ptr<ChannelRecord> record, std::function<void()> done) {
  begin_work();
  auto last = std::make_shared<std::shared_ptr<ChannelRecord>>(std::move(record));
  context_->registrar->run(
      identity_.session, [last] { last->reset(); },
      [self = shared_from_this(), done = std::move(done)] {
        done();
        self->end_work();
      });
}

// Round robin; kNoPoller when all are full.
uint32_t Session::choose_poller() {
  const auto count = static_cast<uint32_t>(context_->pollers.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t poller = context_->next_poller++ % count;
    if (context_->channels_of_poller[poller] < kChannelsPerPoller) return poller;
  }
  return kNoPoller;
}

void Session::on(ReplyTo to, const ChannelMapped& message) {
  const auto found = channels_.find(message.channel);
  if (found == channels_.end() || found->second->state != ChannelRecord::State::kOffered) {
    return refuse(to, no_channel(message.channel, "open and not mapped yet"));
  }
  ChannelRecord* record = found->second.get();
  Status status = shm::seal_c2e(record->c2e.get());
  // Only the client can have sealed it against seals.
  if (!status.ok()) status = Status(Code::kInvalidArgument, status.message());
  const uint32_t poller = status.ok() ? choose_poller() : kNoPoller;
  if (status.ok() && poller == kNoPoller) {
    status = {Code::kNoResources, "channels of a poller: wanted one more, got a limit of " +
                                      std::to_string(kChannelsPerPoller) +
                                      " in use on each; configure more pollers"};
  }
  if (!status.ok()) {
    return withdraw_offer(found, [self = shared_from_this(), to, status] {
      self->refuse(to, Status(status).with_context("channel_mapped"));
    });
  }
  record->c2e.reset();
  record->poller = poller;
  record->state = ChannelRecord::State::kPolled;
  record->spec.stats = context_->stats->channel(row_, message.channel);
  ++context_->channels_of_poller[poller];
  context_->pollers[poller]->send({Command::Kind::kAddChannel, Code::kOk, &record->spec},
                                  record->prepared);
  // Only when the poller has it may others send notifications there.
  begin_work();
  context_->grace.wait(
      GraceList::PollerSet{1} << poller, nullptr,
      [self = shared_from_this(), to, index = message.channel, record, poller] {
        const auto now = self->channels_.find(index);
        const bool still_polled = now != self->channels_.end() && now->second.get() == record &&
                                  record->state == ChannelRecord::State::kPolled;
        if (still_polled && record->spec.sizes.notification_slots != 0) {
          self->shared_->notify_poller.store(poller, std::memory_order_release);
        }
        if (still_polled) {
          self->reply(ok_reply(to));
        } else {
          self->refuse(to, {Code::kAborted,
                            "channel_mapped: wanted the channel open, got it closed "
                            "meanwhile; open another"});
        }
        self->end_work();
      });
}

void Session::on(ReplyTo to, const CloseChannel& message) {
  const auto found = channels_.find(message.channel);
  if (found == channels_.end() || found->second->state == ChannelRecord::State::kMaking) {
    return refuse(to, no_channel(message.channel, "open"));
  }
  ChannelRecord& record = *found->second;
  if (record.state == ChannelRecord::State::kOffered) {
    return withdraw_offer(found, [self = shared_from_this(), to] { self->reply(ok_reply(to)); });
  }
  record.closers.push_back(to);
  close_channel(record);
}

void Session::close_channel(ChannelRecord& record) {
  if (record.state != ChannelRecord::State::kPolled) return;
  record.state = ChannelRecord::State::kClosing;
  if (record.spec.sizes.notification_slots != 0) {
    shared_->notify_poller.store(kNoPoller, std::memory_order_release);
  }
  context_->pollers[record.poller]->send(
      {Command::Kind::kCloseChannel, Code::kAborted, &record.spec});
}

// Those that are being made go when they are.
void Session::close_channels() {
  for (auto next = channels_.begin(); next != channels_.end();) {
    const auto at = next++;
    if (at->second->state == ChannelRecord::State::kOffered) {
      withdraw_offer(at, [] {});
    } else {
      close_channel(*at->second);
    }
  }
}

// Judged by beats of ours, not by the time: an engine that was held up itself suspects nobody. Only
// a flag; a stopped client is given all the time it wants.
void Session::watch_reaping() {
  if (state_ != State::kActive) return;
  bool stalled = false;
  for (const auto& [index, record] : channels_) {
    if (record->state != ChannelRecord::State::kPolled) continue;
    const ChannelSpec& spec = record->spec;
    const uint64_t cursor = spec.c2e.at<const shm::ClientWords>(spec.c2e_header.words_offset)
                                ->reap_cursor.load(std::memory_order_acquire);
    const shm::Slot& next = spec.e2c.at<const shm::Slot>(
        spec.e2c_header.completion_offset)[cursor & (spec.sizes.completion_slots() - 1)];
    const bool waits = next.sequence.load(std::memory_order_acquire) == cursor + 1;
    const bool moved = std::exchange(record->reap_cursor, cursor) != cursor;
    record->beats_unreaped = waits && !moved ? record->beats_unreaped + 1 : 0;
    stalled = stalled || record->beats_unreaped >= kStalledBeats;
  }
  if (stalled) {
    row_->flags.fetch_or(shm::kClientStalled, std::memory_order_release);
  } else {
    row_->flags.fetch_and(~shm::kClientStalled, std::memory_order_release);
  }
}

void Session::channel_closed(ChannelSpec* spec) {
  const auto found = channels_.find(spec->channel);
  if (found == channels_.end() || &found->second->spec != spec) return;
  std::shared_ptr<ChannelRecord> record = std::move(found->second);
  channels_.erase(found);
  if (record->spec.sizes.notification_slots != 0) {
    shared_->notify_poller.store(kNoPoller, std::memory_order_release);
  }
  --context_->channels_of_poller[record->poller];
  update_row();
  std::vector<ReplyTo> closers = std::move(record->closers);
  take_down(std::move(record), [self = shared_from_this(), closers = std::move(closers)] {
    for (const ReplyTo& closer : closers) self->reply(ok_reply(closer));
  });
}

}  // namespace wherry::engine
