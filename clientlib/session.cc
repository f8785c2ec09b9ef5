#include "clientlib/session.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "clientlib/guard.h"
#include "shm/run_root.h"

namespace wherry::detail {
namespace {

std::atomic<uint64_t> g_last_serial{0};

// The channels of this thread, one per session it has used.
class ThreadChannels {
 public:
  std::shared_ptr<ChannelCore> find(uint64_t serial) const {
    for (const Entry& entry : entries_) {
      if (entry.serial == serial) return entry.core.lock();
    }
    return nullptr;
  }

  void add(uint64_t serial, const std::shared_ptr<ChannelCore>& core) {
    const auto over = [serial](const Entry& entry) {
      return entry.serial == serial || entry.core.expired();
    };
    entries_.erase(std::remove_if(entries_.begin(), entries_.end(), over), entries_.end());
    entries_.push_back({serial, core});
  }

 private:
  struct Entry {
    uint64_t serial;
    std::weak_ptr<ChannelCore> core;
  };
  std::vector<Entry> entries_;
};

ThreadChannels& this_thread() {
  thread_local ThreadChannels channels;
  return channels;
}

KeeperOptions keeper_options(const AttachOptions& options) {
  KeeperOptions keeper;
  const std::string engine =
      options.engine.empty() ? std::string(shm::kDefaultEngineName) : options.engine;
  keeper.socket_path =
      (options.run_dir.empty() ? shm::run_dir(engine) : options.run_dir) + "/engine.sock";
  keeper.instance = options.instance;
  keeper.rank = options.rank;
  keeper.wait_ms = options.wait_ms;
  keeper.back_off_min_ms = std::max<uint64_t>(options.back_off_min_ms, 1);
  keeper.back_off_max_ms = std::max(options.back_off_max_ms, keeper.back_off_min_ms);
  keeper.reattach = options.reattach;
  keeper.on_state = options.on_state;
  return keeper;
}

}  // namespace

Result<std::shared_ptr<Session>> Session::attach(const AttachOptions& options) {
  auto session = std::make_shared<Session>(options);
  Result<std::shared_ptr<ChannelCore>> main = session->make_core(options.channel);
  if (!main.ok()) return main.status();
  session->main_ = *main;
  session->thread_channels_.push_back(*main);
  session->channels_.push_back({*main, options.channel});
  session->keeper_ = std::make_shared<Keeper>(keeper_options(options), session);
  if (Status status = session->keeper_->start(); !status.ok()) return status;
  this_thread().add(session->serial_, *main);
  return session;
}

Session::Session(const AttachOptions& options)
    : options_(options), serial_(++g_last_serial), fork_generation_(fork_generation()) {}

Session::~Session() {
  if (keeper_ == nullptr) return;
  if (!forked()) {
    keeper_->stop();
  } else {
    // Its thread is not in this process, nor is who held its locks: it cannot be destroyed here.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Keeper>(std::move(keeper_)));
  }
}

// Locks `life` for an operation that needs the engine. While none is attached it refuses at once:
// the lock is the driver's for as long as it registers everything again.
Status Session::enter(std::shared_lock<std::shared_mutex>* life, const char* call) {
  if (Status status = keeper_->may_call(call); !status.ok()) return status;
  *life = std::shared_lock(life_);
  return {};
}

Result<std::shared_ptr<ChannelCore>> Session::make_core(const ChannelOptions& options) {
  CoreOptions core;
  core.descriptor = options.descriptor;
  core.spin_ns = uint64_t{options.spin_us} * 1000;
  core.on_close = [self = weak_from_this()](const Link& link) {
    if (const std::shared_ptr<Session> session = self.lock()) {
      session->keeper_->post_close_channel(link.parts().number, link.parts().life.get());
    }
  };
  return ChannelCore::create(table_, std::move(core));
}

// With `life_` held: a channel of the current life, not yet given to its core.
Result<std::unique_ptr<Link>> Session::open_link(const ChannelOptions& options, bool main) {
  Result<ChannelAnswer> channel =
      call_open_channel(*keeper_, options.submission_slots, main,
                        main ? options_.notification_slots : 0, options.descriptor);
  if (!channel.ok()) return channel.status();
  const uint32_t number = channel->number;
  Result<std::unique_ptr<Link>> link = guarded([&] { return make_link(std::move(*channel)); });
  if (!link.ok()) keeper_->post_close_channel(number, current_.get());
  return link;
}

// Maps a channel that the engine has opened, and tells it so.
Result<std::unique_ptr<Link>> Session::make_link(ChannelAnswer channel) {
  Result<LinkParts> parts = map_link(channel.c2e.get(), channel.e2c.get());
  if (!parts.ok()) return parts.status();
  parts->eventfd = std::move(channel.eventfd);
  parts->wake_socket = std::move(channel.wake_socket);
  parts->number = channel.number;
  parts->life = current_;
  parts->clock_offset_ns = clock_offset_ns_;
  parts->default_deadline_ns = default_deadline_ns_;
  auto link = std::make_unique<Link>(std::move(*parts));
  if (Status s = call_channel_mapped(*keeper_, channel.number); !s.ok()) return s;
  return link;
}

Result<std::shared_ptr<ChannelCore>> Session::open_channel(const ChannelOptions& options) {
  std::shared_lock<std::shared_mutex> life;
  if (Status status = enter(&life, "open channel"); !status.ok()) return status;
  Result<std::shared_ptr<ChannelCore>> core = make_core(options);
  if (!core.ok()) return core.status();
  Result<std::unique_ptr<Link>> link = open_link(options, false);
  if (!link.ok()) return link.status();
  (*core)->offer(std::move(*link));
  std::lock_guard lock(mutex_);
  const auto gone = [](const OpenedChannel& opened) { return opened.core.expired(); };
  channels_.erase(std::remove_if(channels_.begin(), channels_.end(), gone), channels_.end());
  channels_.push_back({*core, options});
  return core;
}

Result<std::shared_ptr<ChannelCore>> Session::thread_channel() {
  const std::shared_ptr<ChannelCore> mine = this_thread().find(serial_);
  if (mine != nullptr && mine->try_own()) return mine;
  {
    // One that a thread left behind when it ended, before a new one.
    std::lock_guard lock(mutex_);
    for (const std::shared_ptr<ChannelCore>& core : thread_channels_) {
      if (!core->try_own()) continue;
      this_thread().add(serial_, core);
      return core;
    }
  }
  Result<std::shared_ptr<ChannelCore>> core = open_channel(options_.channel);
  if (!core.ok()) return core.status();
  this_thread().add(serial_, *core);
  std::lock_guard lock(mutex_);
  thread_channels_.push_back(*core);
  return core;
}

}  // namespace wherry::detail
