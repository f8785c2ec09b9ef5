// Session: one attached client, from the accepted hello until the last thing of it is released.
//
//   active   answers requests, its channels are polled
//   closing  hung up, died, detached or broke the contract: its publications are taken back, its
//   channels
//            drain, then its memory is released
//   gone     nothing of it is left; its name is free again
// Owned by the control thread's context (shared, since work under way keeps it alive); control
// thread only. Whatever a client sends ends in exactly one reply; nothing here blocks. The parts
// are in files of their own: session.cc (life, requests), session_channels.cc, session_memory.cc
// and session_sharing.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/control/connection.h"
#include "engine/control/control_context.h"
#include "engine/control/handle_table.h"
#include "engine/control/messages.h"
#include "engine/control/replies.h"
#include "engine/poller/channel_spec.h"
#include "shm/error_log.h"
#include "shm/file_descriptor.h"

namespace wherry::engine {

// Who a client is, as agreed in its hello.
struct SessionIdentity {
  uint64_t session = 0;
  uint64_t incarnation = 0;
  std::string instance;
  uint32_t rank = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
  uint32_t protocol = 0;
  uint64_t features = 0;
  int64_t clock_offset_ns = 0;
  shm::UniqueFd pidfd;

  std::string name() const { return instance + "/" + std::to_string(rank); }
};

// Why a session ends.
struct Ending {
  shm::ErrorId error = shm::ErrorId::kClientLost;
  std::string reason;
  bool recorded = true;  // in the error log of the stats file
  bool told = false;     // to the client, in a `closing` event
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  enum class State : uint8_t { kActive, kClosing, kGone };

  // `row` is the session's until it is gone.
  Session(ControlContext* context, SessionIdentity identity, Connection* connection,
          shm::ClientRow* row);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Answers now or later. Descriptors not wanted are refused.
  void handle(ControlRequest request, std::vector<shm::UniqueFd> descriptors);

  // Ends the session, whatever it is doing; again is no error.
  void begin_closing(const Ending& ending);

  // From now on nobody is behind it.
  void connection_lost() { connection_ = nullptr; }
  bool has_connection() const { return connection_ != nullptr; }

  // From a poller's report: nothing of that channel is touched any more.
  void channel_closed(ChannelSpec* spec);

  // Another session took back, or lost, what these handles of this one mean. `done` is called when
  // no poller can read them from this session's table any more.
  void lose_found(const std::vector<uint64_t>& handles, std::function<void()> done);

  // Answers a find_layout that waited: the layout has been published.
  void end_wait(uint64_t request, const ExportKey& key);

  State state() const { return state_; }
  const SessionIdentity& identity() const { return identity_; }
  // What other clients find when they look for this one.
  const std::shared_ptr<const View>& client_view() const { return client_view_; }
  ClientReport report() const;

  // Once a beat: flags a client that leaves its completions lying.
  void watch_reaping();

 private:
  // A channel as the client sees it. While it is being made all but its state and spec.sizes belong
  // to a registrar.
  struct ChannelRecord {
    enum class State : uint8_t { kMaking, kOffered, kPolled, kClosing };
    State state = State::kMaking;
    ChannelSpec spec;
    std::shared_ptr<Channel> prepared;     // its poller's state
    std::vector<shm::UniqueFd> to_client;  // until it is offered
    shm::UniqueFd c2e;                     // until it is sealed
    shm::UniqueFd eventfd;
    shm::UniqueFd wake_socket;
    uint32_t poller = 0;
    std::vector<ReplyTo> closers;  // who is to be told that it is closed
    uint64_t reap_cursor = 0;      // at the last beat
    uint32_t beats_unreaped = 0;   // that completions have lain there since
  };

  using Channels = std::map<uint32_t, std::shared_ptr<ChannelRecord>>;
  using Descriptors = std::vector<shm::UniqueFd>;

  // --- session.cc
  Status refuse_when_draining(const RequestBody& body) const;
  void reply(std::string text, Descriptors descriptors = {});
  void refuse(ReplyTo to, const Status& status);
  Status limit_reached(const char* key, uint64_t limit, uint64_t used) const;
  void begin_work() { ++under_way_; }
  void end_work();
  void publish_table(std::function<void()> done);
  GraceList::PollerSet pollers() const;
  void advance_closing();
  void release_everything();
  void update_row();

  void on(ReplyTo to, const ListTransports& message);
  void on(ReplyTo to, const Detach& message);
  void on(ReplyTo to, const Hello& message);
  void on(ReplyTo to, const Admin& message);

  // --- session_channels.cc
  void on(ReplyTo to, const OpenChannel& message);
  void on(ReplyTo to, const ChannelMapped& message);
  void on(ReplyTo to, const CloseChannel& message);
  Result<shm::ChannelSizes> channel_sizes(const OpenChannel& message) const;
  void channel_made(ReplyTo to, std::shared_ptr<ChannelRecord> record, const Status& status);
  static Status make_channel(ChannelRecord& record, bool wants_descriptor);
  void withdraw_offer(Channels::iterator offered, std::function<void()> done);
  void take_down(std::shared_ptr<ChannelRecord> record, std::function<void()> done);
  uint32_t choose_poller();
  void close_channel(ChannelRecord& record);
  void close_channels();

  // --- session_memory.cc
  void on(ReplyTo to, const RegisterRegion& message, Descriptors descriptors);
  void on(ReplyTo to, const FreeRegion& message);
  void on(ReplyTo to, const RegisterLayout& message);
  void on(ReplyTo to, const FreeLayout& message);
  void region_mapped(ReplyTo to, const RegisterRegion& message, bool writable,
                     Result<std::shared_ptr<const Mapping>> mapping);
  void give_back_region(const std::shared_ptr<const Mapping>& mapping, uint64_t bytes,
                        std::function<void()> done);
  Result<Holding*> own(uint64_t handle, Holding::Kind kind, const char* what);

  // --- session_sharing.cc
  void on(ReplyTo to, const Publish& message);
  void on(ReplyTo to, const Unpublish& message);
  void on(ReplyTo to, const FindLayout& message);
  void on(ReplyTo to, const FindClient& message);
  void on(ReplyTo to, const ReleaseFound& message);
  void finish_find(ReplyTo to, const ExportKey& key);
  void find_failed(ReplyTo to, const ExportKey& key, uint32_t waited_ms);
  uint64_t hold_found(std::shared_ptr<const View> view, uint8_t rights);
  void revoke(const std::shared_ptr<const View>& view, std::function<void()> done);
  void revoke_all(std::function<void()> done);

  ControlContext* const context_;
  SessionIdentity identity_;
  const ClientLimits& limits_;
  Connection* connection_;
  shm::ClientRow* const row_;
  const uint64_t attached_ns_;

  State state_ = State::kActive;
  bool revoking_ = false;   // closing: others still hold what was published
  bool releasing_ = false;  // closing: the last step
  bool detaching_ = false;  // the reply to `detach` is owed
  ReplyTo detach_{};
  uint32_t under_way_ = 0;  // pieces of work that will call end_work()
  uint32_t registering_ = 0;
  uint32_t waiting_finds_ = 0;
  uint64_t registered_bytes_ = 0;
  uint64_t layout_parts_ = 0;

  std::shared_ptr<SessionShared> shared_;
  std::shared_ptr<const View> client_view_;
  HandleTable handles_;
  std::unique_ptr<const ClientTable> table_;  // what `shared_` publishes
  Channels channels_;
};

}  // namespace wherry::engine
