// Session: what stands behind all copies of a Client. Internal.
//
// Any thread, but where a method says otherwise. Two locks: `life_` is held shared by every
// operation that changes what the engine knows, and exclusively by the driver (keeper.h) while it
// attaches again, so an operation happens within one life; `mutex_` guards the registry and the
// handle table's writers, and is never held while the engine is asked. The parts are in files of
// their own: session.cc (attach, channels), session_memory.cc (regions), session_layouts.cc
// (layouts, sharing) and session_reattach.cc.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/channel_core.h"
#include "clientlib/client.h"
#include "clientlib/keeper.h"
#include "clientlib/registry.h"

namespace wherry::detail {

class Session final : public Keeper::Owner, public std::enable_shared_from_this<Session> {
 public:
  static Result<std::shared_ptr<Session>> attach(const AttachOptions& options);
  explicit Session(const AttachOptions& options);
  ~Session() override;

  Result<Region> create_region(uint64_t bytes, uint64_t huge_page_bytes);
  Result<Region> register_region(int memfd, uint64_t offset, uint64_t bytes, bool map);
  Result<Region> adopt_region(void* address, uint64_t bytes, const AdoptOptions& options);
  Status free_region(RegionHandle region);

  Result<LayoutHandle> register_layout(const LayoutSpec& spec);
  Status free_layout(LayoutHandle layout);
  Status publish(LayoutHandle layout, Publication publication);
  Status unpublish(LayoutHandle layout);
  Result<FoundLayout> find_layout(const InstanceId& instance, uint32_t rank, Tier tier,
                                  uint64_t deadline_ns);
  Result<ClientHandle> find_client(const InstanceId& instance, uint32_t rank);
  Result<std::vector<TransportInfo>> transports();

  // The calling thread's channel, opened the first time.
  Result<std::shared_ptr<ChannelCore>> thread_channel();
  Result<std::shared_ptr<ChannelCore>> open_channel(const ChannelOptions& options);
  const std::shared_ptr<ChannelCore>& main_channel() const { return main_; }

  Keeper& keeper() { return *keeper_; }
  bool forked() const { return fork_generation_ != fork_generation(); }

 private:
  class Draft;
  struct OpenedChannel {
    std::weak_ptr<ChannelCore> core;
    ChannelOptions options;
  };

  // Keeper::Owner; the driver's thread.
  Status attached(const HelloAnswer& hello, std::shared_ptr<Life> life, std::string* note) override;
  void stale(std::vector<uint64_t> handles) override;

  // session.cc
  Status enter(std::shared_lock<std::shared_mutex>* life, const char* call);
  Result<std::shared_ptr<ChannelCore>> make_core(const ChannelOptions& options);
  Result<std::unique_ptr<Link>> open_link(const ChannelOptions& options, bool main);
  Result<std::unique_ptr<Link>> make_link(ChannelAnswer channel);

  // session_memory.cc
  Result<Region> add_region(OwnRegion region, bool map);
  Result<HandleInfo> own(uint64_t handle, HandleKind kind, const char* what);
  Result<uint64_t> add_handle(const HandleInfo& info);
  void set_handle(uint64_t handle, const HandleInfo& info);
  bool forget(uint64_t handle);

  // session_layouts.cc
  Result<std::vector<EnginePart>> engine_parts(const LayoutSpec& spec, bool* writable);
  Result<uint64_t> add_found(HandleInfo info);
  bool set_found(uint64_t handle, HandleInfo info);

  // session_reattach.cc
  void forget_found();
  std::set<uint64_t>::iterator make_stale(std::set<uint64_t>::iterator found);
  Status register_again(std::string* note);
  Status reopen_channels(std::string* note);

  const AttachOptions options_;
  const uint64_t serial_;  // of this session in this process
  const uint32_t fork_generation_;
  const std::shared_ptr<HandleTable> table_ = std::make_shared<HandleTable>();
  std::shared_ptr<Keeper> keeper_;
  std::shared_ptr<ChannelCore> main_;  // set by attach(), not changed afterwards

  std::shared_mutex life_;
  // Of the current life; changed with `life_` held exclusively and `mutex_`.
  std::shared_ptr<Life> current_;
  int64_t clock_offset_ns_ = 0;
  uint64_t default_deadline_ns_ = 0;

  std::mutex publishing_;  // held over a call: the registry says what the engine did last

  std::mutex mutex_;
  Registry registry_;
  std::vector<uint64_t> early_stale_;  // engine handles: stale before they got into the table
  std::vector<OpenedChannel> channels_;
  std::vector<std::shared_ptr<ChannelCore>> thread_channels_;  // with the main one
};

// A handle that nobody was told of yet: everything that may fail for want of memory is done, then
// the engine is asked, and unless it agrees the handle goes again.
class Session::Draft {
 public:
  Draft(Session& session, uint64_t handle) : session_(session), handle_(handle) {}
  ~Draft() {
    if (handle_ != 0) session_.forget(handle_);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  uint64_t handle() const { return handle_; }
  uint64_t keep() { return std::exchange(handle_, 0); }

 private:
  Session& session_;
  uint64_t handle_;
};

// Freeing what an engine that is gone had is done by not registering it again.
inline bool freed(const Status& status) {
  return status.ok() || status.code() == Code::kEngineGone;
}

// What the handle of a client's own layout means now.
HandleInfo layout_info(const LayoutSpec& spec, uint64_t engine_handle, bool writable);

}  // namespace wherry::detail
