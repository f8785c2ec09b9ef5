// ChannelCore: completions, the end of a life, cancels, notifications that arrived.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "clientlib/channel_core.h"
#include "clientlib/guard.h"

namespace wherry::detail {
namespace {

uint64_t to_client_clock(uint64_t engine_ns, int64_t offset_ns) {
  return engine_ns == 0 ? 0 : engine_ns + static_cast<uint64_t>(offset_ns);
}

Code code_of(const shm::CompletionHead& head) {
  return head.status < kCodeCount ? static_cast<Code>(head.status) : Code::kInternal;
}

// A record that failed before any byte moved failed with all its blocks, and its entries name who
// is to blame. Else they name all that failed.
bool failed_whole(const shm::CompletionHead& head) {
  return code_of(head) != Code::kOk && head.bytes == 0;
}

// Beside records that succeed, all blocks of one that failed have to be named.
bool names_all(const Record& record, const shm::CompletionHead& head) {
  return failed_whole(head) && record.request->split;
}

}  // namespace

Result<std::shared_ptr<ChannelCore>> ChannelCore::create(std::shared_ptr<const HandleTable> handles,
                                                         CoreOptions options) {
  const bool descriptor = options.descriptor;
  std::shared_ptr<ChannelCore> core(new ChannelCore(std::move(handles), std::move(options)));
  if (!core->try_own()) return out_of_memory("none to remember a channel's thread");
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
      fork_generation_(fork_generation()) {}

ChannelCore::~ChannelCore() {
  const std::unique_ptr<Link> untaken(next_link_.exchange(nullptr, std::memory_order_acq_rel));
  if (forked() || !options_.on_close) return;
  const Link* link = untaken != nullptr ? untaken.get() : link_.get();
  if (link == nullptr) return;
  [[maybe_unused]] const Status ignored = guarded([&]() -> Status {
    options_.on_close(*link);
    return {};
  });
}

void ChannelCore::offer(std::unique_ptr<Link> link) noexcept {
  refused_.store(Code::kOk, std::memory_order_release);
  delete next_link_.exchange(link.release(), std::memory_order_acq_rel);
  if (self_event_.valid()) shm::ring_eventfd(self_event_.get());
}

bool ChannelCore::take_link() {
  link_.reset(next_link_.exchange(nullptr, std::memory_order_acq_rel));
  if (link_ == nullptr) return false;
  ++lives_;
  corrupt_ = false;
  if (!epoll_.valid()) return true;
  disarm_self();  // what offer() rang for
  if (link_->parts().wake_socket.valid()) {
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

uint32_t ChannelCore::drive() noexcept {
  if (!try_own()) return 0;
  finished_ = 0;
  try {
    work();
  } catch (...) {
    // No memory for a list of failed blocks, or for a notification: the next call goes on from
    // here.
  }
  return finished_;
}

uint32_t ChannelCore::poll() noexcept {
  const uint32_t finished = drive();
  if (owner_.held()) unheard_ = told_ = false;
  return finished;
}

void ChannelCore::work() {
  if (armed_) disarm();
  if (link_ == nullptr && !take_link()) return;
  const bool ended = over();
  reap();
  if (ended) return resolve_rest();
  if (waiting_ != nullptr) flush_waiting();
  if (cancels_wanted_) send_cancels();
  if (written_) {
    link_->ring();
    written_ = false;
  }
}

void ChannelCore::reap() {
  while (!corrupt_ && link_->completions().ready()) {
    shm::CompletionHead head;
    link_->completions().copy_head(&head);
    const Record* found = link_->records().find(head.request_id);
    if (found == nullptr || head.failed_count > std::max(found->blocks, 1u)) {
      corrupt_ = true;
      break;
    }
    const Record record = *found;
    reserve_failed(record, head);
    merge(record, head);
    link_->reap(shm::completion_slots(head.failed_count), record.slots);
    link_->records().remove(record.id);
    settle(record.request);
  }
  link_->store_reap_cursor();
}

// Room for what merge() will add to the list of failed blocks.
void ChannelCore::reserve_failed(const Record& record, const shm::CompletionHead& head) {
  std::vector<FailedBlock>& list = record.request->completion.failed;
  const size_t size = list.size() + (names_all(record, head) ? record.blocks : head.failed_count);
  if (size > list.capacity()) list.reserve(std::max(size, 2 * list.capacity()));
}

void ChannelCore::merge(const Record& record, const shm::CompletionHead& head) {
  Completion& whole = record.request->completion;
  const uint64_t failed =
      failed_whole(head) ? record.blocks : std::min<uint64_t>(head.failed_count, record.blocks);
  whole.blocks_failed += failed;
  whole.blocks_ok += record.blocks - failed;
  whole.bytes += head.bytes;
  whole.local_quiet = whole.local_quiet && (head.quiet & shm::kLocalQuiet) != 0;
  whole.remote_quiet = whole.remote_quiet && (head.quiet & shm::kRemoteQuiet) != 0;
  if (record.request->outcome.add(code_of(head))) {
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
  merge_failed(record, head);
  --record.request->records_out;
}

void ChannelCore::merge_failed(const Record& record, const shm::CompletionHead& head) {
  std::vector<FailedBlock>& list = record.request->completion.failed;
  const bool fill = names_all(record, head);
  const size_t base = list.size();
  for (uint32_t i = 0; fill && i < record.blocks; ++i) {
    list.push_back({record.first_index + i, 0, code_of(head), head.wc_status, head.error_number});
  }
  shm::FailedEntry entries[shm::kEntriesPerSlot];
  for (uint32_t i = 0; i < head.failed_count; ++i) {
    if (i > 0 && (i - 1) % shm::kEntriesPerSlot == 0) {
      link_->completions().copy_extension((i - 1) / shm::kEntriesPerSlot, entries, sizeof(entries));
    }
    const shm::FailedEntry entry =
        i == 0 ? head.first_failed : entries[(i - 1) % shm::kEntriesPerSlot];
    if (entry.pair >= record.blocks) continue;
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
  // The submitter looks at its clock just after publishing, the poller once a turn: some
  // nanoseconds too late and too early.
  if (completion.start_ns != 0) {
    completion.start_ns = std::max(completion.start_ns, completion.submit_ns);
  }
  completion.end_ns = std::max({completion.end_ns, completion.start_ns, completion.submit_ns});
  std::sort(completion.failed.begin(), completion.failed.end(),
            [](const FailedBlock& a, const FailedBlock& b) { return a.index < b.index; });
  request->done.store(1, std::memory_order_release);
  ++finished_;
  unheard_ = true;
  pool_.drop(request);
}

// A record that ends without a completion from the engine. Counts as published.
void ChannelCore::end_record(const Record& record, Code code, bool quiet) {
  shm::CompletionHead head{};
  head.status = static_cast<uint8_t>(code);
  head.quiet = quiet ? shm::kLocalQuiet | shm::kRemoteQuiet : 0;
  reserve_failed(record, head);
  if (record.id != 0) link_->records().remove(record.id);
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
  const std::vector<Record> rest = link_->records().oldest_first();
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
    end_record(record, code, quiet);
  }
  if (corrupt_ && !dead) refuse(Code::kInternal);
  cancels_wanted_ = false;
  written_ = false;
  drop_link();
}

Status ChannelCore::cancel(Request* request) {
  if (request->done.load(std::memory_order_acquire) != 0) return {};
  if (forked()) return in_a_fork();
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
  if (request->records_out == 0) return {};
  request->cancel_wanted = true;
  send_cancels();
  return {};
}

void ChannelCore::send_cancels() {
  bool sent = false;
  bool full = false;
  link_->records().for_each([&](Record& record) {
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

void ChannelCore::read_notifications() {
  if (!link_->has_notifications()) return;
  const shm::RecordReader& ring = link_->notifications();
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
    link_->notification_read(slots);
  }
}

}  // namespace wherry::detail
