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
  uint32_t index = 0;
  while (channels_.count(index) != 0) ++index;
  Descriptors to_client;
  Result<std::unique_ptr<ChannelRecord>> record = make_channel(index, message, &to_client);
  if (!record.ok()) return refuse(to, record.status());
  channels_.emplace(index, std::move(*record));
  update_row();
  reply(channel_reply(to, index), std::move(to_client));
}

Result<std::unique_ptr<Session::ChannelRecord>> Session::make_channel(uint32_t index,
                                                                      const OpenChannel& message,
                                                                      Descriptors* to_client) {
  Result<shm::ChannelSizes> sizes = channel_sizes(message);
  if (!sizes.ok()) return sizes.status();
  auto record = std::make_unique<ChannelRecord>();
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
  to_client->push_back(std::move(*clients_c2e));
  to_client->push_back(std::move(e2c->fd));
  to_client->push_back(std::move(*clients_eventfd));
  record->c2e = std::move(*c2e);
  record->eventfd = std::move(*eventfd);
  spec.eventfd = record->eventfd.get();
  if (message.descriptor) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
      return errno_status(Code::kNoResources, "making a channel's wake-up descriptor", errno);
    }
    record->wake_socket.reset(pair[0]);
    to_client->emplace_back(pair[1]);
    spec.wake_socket = pair[0];
  }
  return record;
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
  if (Status status = shm::seal_c2e(record->c2e.get()); !status.ok()) {
    // Only the client can have sealed it against seals.
    channels_.erase(found);
    return refuse(to,
                  Status(Code::kInvalidArgument, status.message()).with_context("channel_mapped"));
  }
  record->c2e.reset();
  const uint32_t poller = choose_poller();
  if (poller == kNoPoller) {
    channels_.erase(found);
    return refuse(to,
                  {Code::kNoResources, "channels of a poller: wanted one more, got a limit of " +
                                           std::to_string(kChannelsPerPoller) +
                                           " in use on each; configure more pollers"});
  }
  record->poller = poller;
  record->state = ChannelRecord::State::kPolled;
  record->spec.stats = context_->stats->channel(row_, message.channel);
  ++context_->channels_of_poller[poller];
  context_->pollers[poller]->send({Command::Kind::kAddChannel, Code::kOk, &record->spec});
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
  if (found == channels_.end()) return refuse(to, no_channel(message.channel, "open"));
  ChannelRecord& record = *found->second;
  if (record.state == ChannelRecord::State::kOffered) {
    channels_.erase(found);
    update_row();
    return reply(ok_reply(to));
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

void Session::close_channels() {
  std::erase_if(channels_, [](const auto& item) {
    return item.second->state == ChannelRecord::State::kOffered;
  });
  for (const auto& [index, record] : channels_) close_channel(*record);
}

void Session::channel_closed(ChannelSpec* spec) {
  const auto found = channels_.find(spec->channel);
  if (found == channels_.end() || &found->second->spec != spec) return;
  ChannelRecord& record = *found->second;
  if (record.spec.sizes.notification_slots != 0) {
    shared_->notify_poller.store(kNoPoller, std::memory_order_release);
  }
  --context_->channels_of_poller[record.poller];
  const std::vector<ReplyTo> closers = std::move(record.closers);
  channels_.erase(found);
  update_row();
  for (const ReplyTo& closer : closers) reply(ok_reply(closer));
  advance_closing();
}

}  // namespace wherry::engine
