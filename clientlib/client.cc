#include "clientlib/client.h"

#include <algorithm>
#include <string>

#include "clientlib/guard.h"
#include "clientlib/outcome.h"
#include "clientlib/session.h"

namespace wherry {
namespace {

// Every call of a Client goes through here.
template <typename Function>
auto in(const std::shared_ptr<detail::Session>& session, Function&& function)
    -> decltype(function()) {
  if (session->forked()) return detail::guarded(detail::in_a_fork);
  return detail::guarded(std::forward<Function>(function));
}

// What a batch ended with: the worst code, and a line for each op that failed.
class BatchResult {
 public:
  void add(size_t index, const Status& status) {
    outcome_.add(status.code());
    if (!status.ok()) add_line(index, status.to_string());
  }
  void add(size_t index, const Completion& completion) {
    outcome_.add(completion.status);
    if (!completion.ok()) add_line(index, completion.to_string());
  }
  bool ok() const { return failed_ == 0; }
  Status status(size_t ops) const {
    if (ok()) return {};
    return {outcome_.code(), "submit: wanted " + std::to_string(ops) + " ops to succeed, got " +
                                 std::to_string(failed_) + " that did not:\n" +
                                 lines_.substr(0, lines_.size() - 1)};
  }

 private:
  void add_line(size_t index, const std::string& text) {
    lines_ += "op " + std::to_string(index) + ": " + text + "\n";
    ++failed_;
  }

  detail::Outcome outcome_;
  std::string lines_;
  size_t failed_ = 0;
};

}  // namespace

Result<Client> Client::attach(const AttachOptions& options) {
  return detail::guarded([&]() -> Result<Client> {
    Result<std::shared_ptr<detail::Session>> session = detail::Session::attach(options);
    if (!session.ok()) return session.status();
    return Client(std::move(*session));
  });
}

Result<Region> Client::create_region(uint64_t bytes, uint64_t huge_page_bytes) {
  return in(session_, [&] { return session_->create_region(bytes, huge_page_bytes); });
}

Result<Region> Client::register_region(int memfd, uint64_t offset, uint64_t bytes, bool map) {
  return in(session_, [&] { return session_->register_region(memfd, offset, bytes, map); });
}

Result<Region> Client::adopt_region(void* address, uint64_t bytes, const AdoptOptions& options) {
  return in(session_, [&] { return session_->adopt_region(address, bytes, options); });
}

Status Client::free_region(RegionHandle region) {
  return in(session_, [&] { return session_->free_region(region); });
}

Result<LayoutHandle> Client::register_layout(const LayoutSpec& spec) {
  return in(session_, [&] { return session_->register_layout(spec); });
}

Status Client::free_layout(LayoutHandle layout) {
  return in(session_, [&] { return session_->free_layout(layout); });
}

Status Client::publish(LayoutHandle layout, Tier tier, Rights rights,
                       const std::vector<InstanceId>& to) {
  return in(session_, [&] { return session_->publish(layout, {tier, rights, to}); });
}

Status Client::unpublish(LayoutHandle layout) {
  return in(session_, [&] { return session_->unpublish(layout); });
}

Result<FoundLayout> Client::find_layout(const InstanceId& instance, uint32_t rank, Tier tier,
                                        uint64_t deadline_ns) {
  return in(session_, [&] { return session_->find_layout(instance, rank, tier, deadline_ns); });
}

Result<TransferCompleteNotification> Client::execute_local_transfer(
    LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
    std::span<const BlockId> destination_blocks, const TransferOptions& options) {
  Result<Channel> mine = channel();
  if (!mine.ok()) return mine.status();
  return mine->execute_local_transfer(source, destination, source_blocks, destination_blocks,
                                      options);
}

Result<TransferCompleteNotification> Client::try_execute_local_transfer(
    LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
    std::span<const BlockId> destination_blocks, const TransferOptions& options) {
  Result<Channel> mine = channel();
  if (!mine.ok()) return mine.status();
  return mine->try_execute_local_transfer(source, destination, source_blocks, destination_blocks,
                                          options);
}

Status Client::submit(std::span<const RangeOp> ops, uint64_t timeout_ns) {
  return in(session_, [&]() -> Status {
    Result<Channel> mine = channel();
    if (!mine.ok()) return mine.status();
    BatchResult refused;
    for (size_t i = 0; i < ops.size(); ++i) refused.add(i, mine->core().check(ops[i]));
    if (!refused.ok()) return refused.status(ops.size());

    // One deadline for all of them, whenever they find room.
    TransferOptions options;
    options.timeout_ns = timeout_ns;
    options.deadline_ns = detail::ChannelCore::absolute_deadline(options);
    options.timeout_ns = 0;
    std::vector<Result<TransferCompleteNotification>> replies;
    replies.reserve(ops.size());
    for (const RangeOp& op : ops) replies.push_back(mine->copy_range(op, options));
    // All of them end before anything else can fail: then the buffers are the caller's again.
    for (Result<TransferCompleteNotification>& reply : replies) {
      while (reply.ok() && reply->completion() == nullptr) {
        [[maybe_unused]] const Status waited = reply->wait().status();
      }
    }
    BatchResult result;
    for (size_t i = 0; i < replies.size(); ++i) {
      if (replies[i].ok()) {
        result.add(i, *replies[i]->completion());
      } else {
        result.add(i, replies[i].status());
      }
    }
    return result.status(ops.size());
  });
}

Result<ClientHandle> Client::find_client(const InstanceId& instance, uint32_t rank) {
  return in(session_, [&] { return session_->find_client(instance, rank); });
}

Result<TransferCompleteNotification> Client::notify(ClientHandle target, std::string_view bytes,
                                                    const TransferOptions& options) {
  Result<Channel> mine = channel();
  if (!mine.ok()) return mine.status();
  return mine->notify(target, bytes, options);
}

Result<TransferCompleteNotification> Client::try_notify(ClientHandle target, std::string_view bytes,
                                                        const TransferOptions& options) {
  Result<Channel> mine = channel();
  if (!mine.ok()) return mine.status();
  return mine->try_notify(target, bytes, options);
}

Result<TransferCompleteNotification> Client::notify(const InstanceId& instance, uint32_t rank,
                                                    std::string_view bytes,
                                                    const TransferOptions& options) {
  Result<ClientHandle> target = find_client(instance, rank);
  if (!target.ok()) return target.status();
  return notify(*target, bytes, options);
}

Result<std::vector<Notification>> Client::poll_notifications() {
  return in(session_, [&] { return Channel(session_->main_channel()).poll_notifications(); });
}

Result<std::vector<Notification>> Client::wait_notifications(uint64_t deadline_ns) {
  return in(session_,
            [&] { return Channel(session_->main_channel()).wait_notifications(deadline_ns); });
}

Result<Channel> Client::channel() {
  return in(session_, [&]() -> Result<Channel> {
    Result<std::shared_ptr<detail::ChannelCore>> core = session_->thread_channel();
    if (!core.ok()) return core.status();
    return Channel(std::move(*core));
  });
}

Result<Channel> Client::open_channel(const ChannelOptions& options) {
  return in(session_, [&]() -> Result<Channel> {
    Result<std::shared_ptr<detail::ChannelCore>> core = session_->open_channel(options);
    if (!core.ok()) return core.status();
    return Channel(std::move(*core));
  });
}

Result<std::vector<TransportInfo>> Client::transports() {
  return in(session_, [&] { return session_->transports(); });
}

EngineState Client::engine_state() const {
  EngineState state;
  try {
    if (!session_->forked()) return session_->keeper().state();
    state.life = EngineLife::kDetached;
    state.reason = "a forked child is not attached";
  } catch (...) {  // no memory for the texts: less is said
  }
  return state;
}

void Client::set_state_callback(std::function<void(const EngineState&)> callback) {
  if (!session_->forked()) session_->keeper().set_callback(std::move(callback));
}

}  // namespace wherry
