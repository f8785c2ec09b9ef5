// ChannelCore: completions, the end of a life, cancels.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "clientlib/channel_core.h"

namespace wherry::detail {
namespace {

uint64_t thread_token() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t token = next.fetch_add(1, std::memory_order_relaxed);
  return token;
}

uint64_t to_client_clock(uint64_t engine_ns, int64_t offset_ns) {
  return engine_ns == 0 ? 0 : engine_ns + static_cast<uint64_t>(offset_ns);
}

}  // namespace

Result<std::shared_ptr<ChannelCore>> ChannelCore::create(std::shared_ptr<const HandleTable> handles,
                                                         CoreOptions options) {
  const bool descriptor = options.descriptor;
  std::shared_ptr<ChannelCore> core(new ChannelCore(std::move(handles), std::move(options)));
  if (!descriptor) return core;
  core->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  Result<shm::UniqueFd> event = shm::create_eventfd();
  if (!event.ok()) return event.status();
  core->self_event_ = std::move(*event);
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  if (!core->epoll_.valid() ||
      epoll_ctl(core->epoll_.get(), EPOLL_CTL_ADD, core->self_event_.get(), &wanted) != 0) {
    return errno_status(Code::kNoResources, "making a channel's descriptor", errno);
  }
  return core;
}

ChannelCore::ChannelCore(std::shared_ptr<const HandleTable> handles, CoreOptions options)
    : handles_(std::move(handles)),
      options_(std::move(options)),
      fork_generation_(fork_generation()),
      owner_(thread_token()) {}

ChannelCore::~ChannelCore() {
  std::unique_ptr<Link> untaken(next_link_.exchange(nullptr, std::memory_order_acq_rel));
  if (forked() || !options_.on_close) return;
  const Link* link = untaken != nullptr ? untaken.get() : link_.get();
  if (link != nullptr) options_.on_close(*link);
}

void ChannelCore::offer(std::unique_ptr<Link> link) {
  delete next_link_.exchange(link.release(), std::memory_order_acq_rel);
}

bool ChannelCore::try_own() {
  const uint64_t me = thread_token();
  uint64_t owner = owner_.load(std::memory_order_acquire);
  if (owner == me) return !forked();
  return owner == 0 && !forked() &&
         owner_.compare_exchange_strong(owner, me, std::memory_order_acq_rel);
}

bool ChannelCore::take_link() {
  link_.reset(next_link_.exchange(nullptr, std::memory_order_acq_rel));
  if (link_ == nullptr) return false;
  ++lives_;
  corrupt_ = false;
  records_ = RecordTable(link_->credits());
  if (epoll_.valid() && link_->parts().wake_socket.valid()) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link_->parts().wake_socket.get(), &wanted);
  }
  return true;
}

void ChannelCore::drop_link() {
  link_.reset();  // closes the wake socket, which takes it out of the epoll set
  take_link();
}

// Whether nothing more will come from this link's engine. To be asked before reaping: what was
// published before the end is then still seen.
bool ChannelCore::over() const {
  return corrupt_ || link_->engine_dead() || link_->state() == shm::ChannelState::kClosed;
}

uint32_t ChannelCore::drive() {
  if (!try_own()) return 0;
  finished_ = 0;
  if (armed_) disarm();
  if (link_ == nullptr && !take_link()) return 0;
  const bool ended = over();
  reap();
  if (ended) {
    resolve_rest();
    return finished_;
  }
  if (waiting_ != nullptr) flush_waiting();
  if (cancels_wanted_) send_cancels();
  if (written_) {
    link_->ring();
    written_ = false;
  }
  return finished_;
}

void ChannelCore::reap() {
  shm::RecordReader& ring = link_->completions();
  bool any = false;
  while (!corrupt_ && ring.ready()) {
    shm::CompletionHead head;
    ring.copy_head(&head);
    const Record* found = records_.find(head.request_id);
    if (found == nullptr || head.failed_count > std::max(found->blocks, 1u)) {
      corrupt_ = true;
      break;
    }
    const Record record = *found;
    merge(record, head);
    ring.consume(shm::completion_slots(head.failed_count));
    link_->return_credits(record.slots);
    records_.remove(record.id);
    any = true;
    settle(record.request);
  }
  if (any) link_->reaped();
}

void ChannelCore::merge(const Record& record, const shm::CompletionHead& head) {
  Completion& whole = record.request->completion;
  const Code code = head.status < kCodeCount ? static_cast<Code>(head.status) : Code::kInternal;
  // A record that failed before any byte moved failed with all its blocks; the entries name who is
  // to blame. Else they name all that failed.
  const bool all_failed = code != Code::kOk && head.bytes == 0;
  const uint64_t failed =
      all_failed ? record.blocks : std::min<uint64_t>(head.failed_count, record.blocks);
  whole.blocks_failed += failed;
  whole.blocks_ok += record.blocks - failed;
  whole.bytes += head.bytes;
  whole.local_quiet = whole.local_quiet && (head.quiet & shm::kLocalQuiet) != 0;
  whole.remote_quiet = whole.remote_quiet && (head.quiet & shm::kRemoteQuiet) != 0;
  if (record.request->outcome.add(code)) {
    whole.wc_status = head.wc_status;
    whole.error_number = head.error_number;
    whole.vendor_error = head.vendor_error;
  }
  if (head.transport != 0) {
    whole.transport = static_cast<TransportKind>(head.transport);
    whole.device = head.device;
  }
  const int64_t offset = link_->parts().clock_offset_ns;
  const uint64_t start = to_client_clock(head.start_ns, offset);
  if (start != 0 && (whole.start_ns == 0 || start < whole.start_ns)) whole.start_ns = start;
  whole.end_ns = std::max(whole.end_ns, to_client_clock(head.end_ns, offset));
  if (failed > 0 || head.failed_count > 0) merge_failed(record, head, all_failed, code);
  --record.request->records_out;
}

void ChannelCore::merge_failed(const Record& record, const shm::CompletionHead& head, bool whole,
                               Code code) {
  std::vector<FailedBlock>& list = record.request->completion.failed;
  // Beside records that succeed, all blocks of one that failed have to be named.
  const bool fill = whole && record.request->split;
  const size_t base = list.size();
  for (uint32_t i = 0; fill && i < record.blocks; ++i) {
    list.push_back({record.first_index + i, 0, code, head.wc_status, head.error_number});
  }
  shm::FailedEntry entries[shm::kEntriesPerSlot];
  for (uint32_t i = 0; i < head.failed_count; ++i) {
    if (i > 0 && (i - 1) % shm::kEntriesPerSlot == 0) {
      link_->completions().copy_extension((i - 1) / shm::kEntriesPerSlot, entries, sizeof(entries));
    }
    const shm::FailedEntry entry =
        i == 0 ? head.first_failed : entries[(i - 1) % shm::kEntriesPerSlot];
    if (entry.pair >= std::max(record.blocks, 1u)) continue;
    const FailedBlock block{record.first_index + entry.pair, 0, static_cast<Code>(entry.status),
                            entry.wc_status, entry.error_number};
    if (fill) {
      list[base + entry.pair] = block;
    } else {
      list.push_back(block);
    }
  }
}

// Finishes a request of which nothing is left to do.
void ChannelCore::settle(Request* request) {
  if (request->records_out > 0 || request->waiting_blocks() > 0 || !request->notification.empty()) {
    return;
  }
  Completion& completion = request->completion;
  completion.status = request->outcome.code();
  if (completion.end_ns == 0) completion.end_ns = monotonic_ns();
  std::sort(completion.failed.begin(), completion.failed.end(),
            [](const FailedBlock& a, const FailedBlock& b) { return a.index < b.index; });
  request->done.store(1, std::memory_order_release);
  ++finished_;
  pool_.drop(request);
}

// A record that ends without a completion from the engine.
void ChannelCore::end_record(const Record& record, Code code, bool quiet) {
  shm::CompletionHead head{};
  head.status = static_cast<uint8_t>(code);
  head.quiet = quiet ? shm::kLocalQuiet | shm::kRemoteQuiet : 0;
  merge(record, head);
  settle(record.request);
}

// The life of the link is over and its completions are reaped: says of everything else what became
// of it.
void ChannelCore::resolve_rest() {
  // Dead beats closed: an engine may die while it closes a session. A dead engine moves nothing any
  // more (its pidfd was readable), and one that closed the channel has drained it: the buffers are
  // quiet.
  const bool dead = link_->engine_dead();
  const bool quiet = !corrupt_ || dead;
  read_notifications();
  std::vector<Record> rest;
  records_.for_each([&rest](const Record& record) { rest.push_back(record); });
  std::sort(rest.begin(), rest.end(), [](const Record& a, const Record& b) { return a.id < b.id; });
  // Nothing may be published any more.
  while (waiting_ != nullptr) {
    abandon_waiting(waiting_, dead ? Code::kNotStarted : Code::kAborted);
  }
  for (const Record& record : rest) {
    Code code = Code::kAborted;
    if (dead) {
      code = link_->inflight().contains(record.id) ? Code::kEngineGone : Code::kNotStarted;
    } else if (corrupt_) {
      code = Code::kInternal;
    }
    records_.remove(record.id);
    end_record(record, code, quiet);
  }
  cancels_wanted_ = false;
  written_ = false;
  drop_link();
}

Status ChannelCore::cancel(Request* request) {
  if (request->done.load(std::memory_order_acquire) != 0) return {};
  if (!try_own()) {
    return {
        Code::kInvalidArgument,
        "cancel: wanted the thread the request's channel belongs to, got another; cancel it there"};
  }
  drive();
  if (request->done.load(std::memory_order_relaxed) != 0) return {};
  if (request->waiting_blocks() > 0 || !request->notification.empty()) {
    abandon_waiting(request, Code::kCancelled);
  }
  request->cancel_wanted = true;
  cancels_wanted_ = true;
  send_cancels();
  return {};
}

void ChannelCore::send_cancels() {
  bool sent = false;
  bool full = false;
  records_.for_each([&](Record& record) {
    if (!record.request->cancel_wanted || record.cancel_sent) return;
    if (!full && link_->cancel(record.id)) {
      record.cancel_sent = true;
      sent = true;
    } else {
      full = true;
    }
  });
  cancels_wanted_ = full;
  if (sent) link_->ring();
}

bool ChannelCore::take_notifications(std::vector<Notification>* out) {
  if (!try_own()) return false;
  drive();
  if (link_ != nullptr) read_notifications();
  for (Notification& one : inbox_) out->push_back(std::move(one));
  inbox_.clear();
  return true;
}

void ChannelCore::read_notifications() {
  if (!link_->has_notifications()) return;
  shm::RecordReader& ring = link_->notifications();
  bool any = false;
  while (!corrupt_ && ring.ready()) {
    shm::NotificationHead head;
    ring.copy_head(&head);
    const uint32_t bytes = uint32_t{head.name_bytes} + head.message_bytes;
    const uint32_t slots = 1 + (bytes + shm::kPayloadBytes - 1) / shm::kPayloadBytes;
    if (head.slot_count != slots || slots > link_->notification_slots()) {
      corrupt_ = true;
      break;
    }
    std::string text(bytes, '\0');
    for (uint32_t at = 0; at < bytes; at += shm::kPayloadBytes) {
      ring.copy_extension(at / shm::kPayloadBytes, text.data() + at,
                          std::min(shm::kPayloadBytes, bytes - at));
    }
    Notification one;
    one.instance = text.substr(0, head.name_bytes);
    one.bytes = text.substr(head.name_bytes);
    one.rank = head.sender_rank;
    one.sequence = head.sequence;
    one.sender_session = head.sender_session;
    inbox_.push_back(std::move(one));
    ring.consume(slots);
    any = true;
  }
  if (any) link_->notifications_read();
}

}  // namespace wherry::detail
