// PollerImpl: the poller's state and the steps of its turn. Private to engine/poller.
//
// The steps are in files of their own: turn.cc (the turn, commands, sleeping), admission.cc
// (records in), transfer.cc (runs out, results back, completions) and notify.cc (notifications).
#pragma once

#include <concurrentqueue/concurrentqueue.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/poller/channel.h"
#include "engine/poller/idle.h"
#include "engine/poller/plan.h"
#include "engine/poller/poller.h"
#include "engine/poller/scheduler.h"
#include "engine/poller/validate.h"
#include "shm/file_descriptor.h"

namespace wherry::engine {

inline constexpr uint32_t kMaxChannels = 4096;    // of one poller
inline constexpr uint32_t kRequestBits = 17;      // request slot in a run's `request`
inline constexpr uint32_t kRecordsPerVisit = 16;  // records of one channel a turn
inline constexpr uint32_t kQuietTurns = 2000;     // without a record: the channel is idle
inline constexpr uint32_t kLooksPerTurn = 8;      // for news, while nothing is to do
inline constexpr uint64_t kWorthAClock = 4096;    // bytes moved: the time is read again
inline constexpr uint32_t kRunsPerPost = 32;
inline constexpr uint32_t kResultsPerPoll = 32;
inline constexpr uint32_t kInboxSlots = 32;  // notifications on their way to one sibling

struct InternalCommand {
  Command command;
  Channel* channel = nullptr;  // kAddChannel: made by the control thread
};

using Inbox = moodycamel::ConcurrentQueue<PostedNotification>;

class PollerImpl {
 public:
  explicit PollerImpl(const PollerOptions& poller_options);

  // --- turn.cc
  uint32_t poll_once();
  uint32_t turn();
  void run();

  // --- any thread of the process
  void wake_if_asleep();

  PollerOptions options;
  shm::UniqueFd epoll;
  shm::UniqueFd wake_fd;           // eventfd, watched edge-triggered, never read
  std::atomic<uint64_t> epoch{1};  // turns begun
  std::atomic<uint32_t> asleep{0};
  bool membarrier = false;

  // Control thread only: what it made for the poller, until the poller has closed it.
  std::map<ChannelSpec*, std::shared_ptr<Channel>> owned_channels;

  moodycamel::ConcurrentQueue<InternalCommand> commands;
  std::atomic<uint64_t> commands_sent{0};
  moodycamel::ConcurrentQueue<Report> reports{16384};
  moodycamel::ProducerToken report_token{reports};

  std::vector<PollerImpl*> siblings;  // all pollers, by index; fixed before any runs
  std::unique_ptr<Inbox> inbox;       // null where there is only one poller
  std::vector<std::unique_ptr<moodycamel::ProducerToken>> outboxes;  // into each sibling's inbox
  std::atomic<uint64_t> inbox_sent{0};

 private:
  struct LaneSlot {
    std::unique_ptr<Lane> lane;
    uint64_t posted_bytes = 0;
  };

  uint64_t clock() const { return options.clock(options.clock_context); }

  // --- turn.cc
  uint32_t take_commands();
  void add_channel(Channel* channel);
  void close_channel(Channel* channel, Code code);
  void finish_closing(Channel* channel);
  uint32_t scan_channels();
  uint32_t visit(Channel* channel);
  void look_at_one_idle_channel();
  void activate(Channel* channel);
  void flush_wakes();
  void report(Report::Kind kind, ChannelSpec* channel, const char* reason);
  void flush_reports();
  void check_ends();
  bool work_waiting() const;
  void sleep();
  void set_doorbells(uint32_t wanted);
  void end_turn(uint32_t work);
  void count_turn(uint64_t end_ns);
  bool look_around();

  // --- admission.cc
  uint32_t admit_records(Channel* channel);
  const char* admit(Channel* channel);
  void start(Request* request, const Verdict& verdict);
  Code choose_transport(Request* request, uint8_t required);
  uint32_t take_cancels(Channel* channel);
  uint32_t expire_deadlines(Channel* channel);
  void violate(Channel* channel, const char* reason);

  // --- transfer.cc
  void mark(Request* request);
  uint32_t schedule();
  void post(LaneSlot& lane, Run* runs, uint32_t count);
  uint32_t poll_lanes();
  void take_result(const RunResult& result);
  void end_early(Request* request, Code code);
  void finish(Request* request);
  void complete(Request* request);
  void refuse(Request* request, const Verdict& verdict);
  void publish(Request* request, shm::CompletionHead& head);
  bool touched_broken_memory(const Request& request) const;
  void hold_views(const Request& request, int change);
  Request* request_of(uint32_t id) const;
  uint32_t id_of(const Request& request) const {
    return request.channel->slot << kRequestBits | request.slot;
  }

  // --- notify.cc
  void notify(Request* request);
  void notify_answered(Request* request, Code code);
  void send_to(uint32_t poller, const PostedNotification& posted);
  Code deliver(const PostedNotification& notification);
  uint32_t take_inbox();
  Channel* notification_channel(uint64_t session) const;

  friend class Poller;

  uint64_t now_ = 0;
  bool just_looked_ = false;    // at the clock, at the end of the last turn
  uint64_t turn_begin_ns_ = 0;  // of the turn that is not counted yet; 0: none
  bool turn_worked_ = false;
  std::array<Run, kRunsPerPost> runs_;  // scratch of schedule() and poll_lanes()
  std::array<RunResult, kResultsPerPoll> results_;
  IdlePolicy idle_;
  PlanCache plans_;
  ValidationScratch scratch_;
  Scheduler scheduler_;
  LaneSlot lanes_[kTransportIds];
  std::vector<Channel*> channels_;       // by slot; null = free
  std::vector<Channel*> active_;         // looked at every turn
  std::vector<Channel*> idle_channels_;  // one of them looked at a turn
  std::vector<Channel*> dirty_;          // to be told of news at the end of the turn
  std::vector<Report> pending_reports_;
  size_t next_idle_ = 0;
  uint64_t commands_taken_ = 0;
  uint64_t inbox_taken_ = 0;
  std::array<uint32_t, kMaxPollers> notifies_out_{};
  uint64_t live_ = 0;  // requests of all channels
  bool draining_ = false;
  bool idle_reported_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  Code stop_code_ = Code::kAborted;

  void mark_dirty(Channel* channel) {
    if (!channel->dirty) dirty_.push_back(channel);
    channel->dirty = true;
  }
};

}  // namespace wherry::engine
