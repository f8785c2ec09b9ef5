// Session: what stands behind all copies of a Client. Internal.
//
// Any thread, but where a method says otherwise. Two locks: `life_` is held shared by every
// operation that changes what the engine knows, and exclusively while the session attaches again,
// so an operation happens within one life; `mutex_` guards the registry and the handle table's
// writers, and is never held while the engine is asked. The parts are in files of their own:
// session.cc (attach, channels), session_memory.cc (regions, layouts, sharing) and
// session_reattach.cc.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
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
  struct OpenedChannel {
    std::weak_ptr<ChannelCore> core;
    ChannelOptions options;
  };

  // Keeper::Owner; the driver's thread.
  Status attached(const HelloAnswer& hello, std::shared_ptr<Life> life, std::string* note) override;
  void stale(const std::vector<uint64_t>& handles) override;

  // session.cc
  Result<std::shared_ptr<ChannelCore>> make_core(const ChannelOptions& options);
  Result<std::unique_ptr<Link>> open_link(const ChannelOptions& options, bool main);
  void channel_closed(uint32_t number, const Life* life);

  // session_memory.cc
  Result<Region> add_region(OwnRegion region);
  Result<HandleInfo> own(uint64_t handle, HandleKind kind, const char* what);
  Result<std::vector<EnginePart>> engine_parts(const LayoutSpec& spec, bool* writable);
  Result<uint64_t> add_handle(const HandleInfo& info);
  void forget(uint64_t handle);

  // session_reattach.cc
  void forget_found();
  Status register_again(std::string* note);
  Status reopen_channels();

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

  std::mutex mutex_;
  Registry registry_;
  std::vector<OpenedChannel> channels_;
  std::vector<std::shared_ptr<ChannelCore>> thread_channels_;  // with the main one
};

// Publishes what a layout or region handle of the library means to the engine now.
HandleInfo layout_info(const LayoutSpec& spec, uint64_t engine_handle, bool writable);

}  // namespace wherry::detail
