// Client: one attached inference process, as the engine knows it.
//
// attach() connects to the engine of this host as (instance, rank). Copies share one session, which
// detaches when the last copy has gone: the engine then drains and frees everything of it; regions
// that the library mapped are unmapped, adopted memory stays, channels end. Any thread may call;
// each thread's requests go through a channel of its own, opened the first time (channel()), so
// transfers never wait for each other's locks. No call throws. A forked child of the process is not
// attached: every call answers ABORTED there, until it attaches for itself.
//
// When the engine dies the library waits until its process is gone, ends every outstanding request
// (NOT_STARTED: safe to repeat; ENGINE_GONE: outcome unknown), attaches again with back-off and
// registers regions, layouts and publications again; handles of those stay valid. What was found is
// STALE then and has to be found again. While no engine is attached calls answer ENGINE_GONE. What
// the new engine refuses (its limits may be smaller) answers with the code it was refused for;
// engine_state() says why.
//
// Calls about memory and layouts go over the control socket and wait for the engine's answer; they
// may answer, beside what is listed with each: ENGINE_GONE, TIMED_OUT, DRAINING, ABORTED (the
// session is just ending), NO_RESOURCES (memory, or a limit of the engine's config, which the
// message names), INTERNAL; and INVALID_ARGUMENT in a state callback, where no answer can come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "clientlib/channel.h"
#include "clientlib/layout.h"
#include "clientlib/types.h"

namespace wherry {

namespace detail {
class Session;
}

struct AttachOptions {
  InstanceId instance;  // who attaches; (instance, rank) is unique on an engine
  uint32_t rank = 0;
  std::string engine;   // the engine's name; empty = "default"
  std::string run_dir;  // its run directory; empty = by the rule of shm/run_root.h, from the name
  // How long attach() goes on trying when no engine is there yet, or a former client of this name
  // is still being cleaned up.
  uint64_t wait_ms = 1000;
  bool reattach = true;  // false: when the engine is gone this client stays without one
  // Between two attempts to attach again: from min on, doubling up to max, less up to half by
  // chance.
  uint64_t back_off_min_ms = 50;
  uint64_t back_off_max_ms = 2000;
  ChannelOptions channel;           // of the first channel and of those opened for threads
  uint32_t notification_slots = 0;  // a power of two; 0 = as the engine's config says
  // Called whenever engine_state() has changed: the first time on the thread that attaches, before
  // attach() returns, then on a thread of the library, until the last copy of the client has gone.
  // It must not wait, and calls to a Client that need an answer are refused in it.
  std::function<void(const EngineState&)> on_state;
};

struct AdoptOptions {
  // The range is page-aligned and was mapped by the caller itself with mmap, private and anonymous.
  // Otherwise it must be a buffer as malloc, numpy or torch gave it out, large enough to have pages
  // of its own.
  bool own_mapping = false;
};

class Client {
 public:
  // UNREACHABLE: no engine, with the path; ALREADY_EXISTS: the name is taken by somebody alive;
  // NOT_PERMITTED; VERSION_MISMATCH; INVALID_ARGUMENT; NO_RESOURCES.
  static Result<Client> attach(const AttachOptions& options);

  // --- Memory

  // Shared memory of at least `bytes`, mapped here, all pages allocated and zero.
  // `huge_page_bytes`: 0, or a huge page size of this machine (2 MiB, 1 GiB).
  Result<Region> create_region(uint64_t bytes, uint64_t huge_page_bytes = 0);

  // A memfd of the caller's, sealed against shrinking and with all its pages allocated, from
  // `offset` on; both in whole pages. The descriptor is duplicated. What it is open for is the
  // right: O_RDONLY makes a source only. With `map` the library maps it too. INVALID_ARGUMENT: no
  // such memfd, or no bytes; OUT_OF_RANGE: past its end.
  Result<Region> register_region(int memfd, uint64_t offset, uint64_t bytes, bool map = false);

  // Moves the pages of existing private memory into a memfd, at the same addresses, and registers
  // that. Adopt before anything pins the memory (RDMA or CUDA registration, io_uring buffers,
  // mlock); afterwards it is shared with forked children, and it is still freed as before.
  // Region::offset is where `address` lies in the region, which covers the whole pages around it.
  // Region::guarded says whether writers were held up meanwhile; where the kernel does not allow
  // that (userfaultfd), nothing may write to the memory during the call. INVALID_ARGUMENT: the
  // memory does not own its pages; the message says why. Upon a failure the contents are untouched.
  Result<Region> adopt_region(void* address, uint64_t bytes, const AdoptOptions& options = {});

  // After the last request that uses it; the library's mapping goes with it. NOT_PERMITTED while a
  // layout needs it, STALE when it is none.
  Status free_region(RegionHandle region);

  // --- Layouts

  // INVALID_ARGUMENT, OUT_OF_RANGE, OVERLAP (two parts share bytes), STALE (a region that is none).
  Result<LayoutHandle> register_layout(const LayoutSpec& spec);

  // A layout of one's own, or one that was found. Waits for the last request that uses one's own.
  Status free_layout(LayoutHandle layout);

  // Lets others find this client's layout under (instance, rank, tier): those of `to`, or everybody
  // when that is empty. NOT_PERMITTED: Rights::kReadWrite on read-only memory; ALREADY_EXISTS: this
  // client publishes something there.
  Status publish(LayoutHandle layout, Tier tier, Rights rights = Rights::kRead,
                 const std::vector<InstanceId>& to = {});
  // From all tiers. Waits for the last request of others that uses it; publish() of the same client
  // waits behind that. INVALID_ARGUMENT: it is not published.
  Status unpublish(LayoutHandle layout);

  // Waits until it is published, at most until the deadline. UNKNOWN_INSTANCE: it was not;
  // NOT_PERMITTED: not to this instance; STALE: it was, and was taken back meanwhile.
  Result<FoundLayout> find_layout(const InstanceId& instance, uint32_t rank, Tier tier,
                                  uint64_t deadline_ns = 0);

  // --- Transfers: see Channel, whose calls these are, on this thread's channel

  Result<TransferCompleteNotification> execute_local_transfer(
      LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
      std::span<const BlockId> destination_blocks, const TransferOptions& options = {});
  Result<TransferCompleteNotification> try_execute_local_transfer(
      LayoutHandle source, LayoutHandle destination, std::span<const BlockId> source_blocks,
      std::span<const BlockId> destination_blocks, const TransferOptions& options = {});

  // Copies all the ranges and waits for exactly one reply for each. OK, or the worst code with a
  // line per op that failed, "op <i>: <CODE>: <why>", in the order of the ops. An op that the
  // library can see is wrong fails the whole batch before anything is accepted. `timeout_ns` 0 =
  // the engine's default.
  Status submit(std::span<const RangeOp> ops, uint64_t timeout_ns = 0);

  Status cancel(TransferCompleteNotification request) { return request.cancel(); }

  // --- Notifications

  // Looks another client up, for notify() and try_notify(). UNKNOWN_INSTANCE: nobody of that name.
  Result<ClientHandle> find_client(const InstanceId& instance, uint32_t rank);
  Result<TransferCompleteNotification> notify(ClientHandle target, std::string_view bytes,
                                              const TransferOptions& options = {});
  Result<TransferCompleteNotification> try_notify(ClientHandle target, std::string_view bytes,
                                                  const TransferOptions& options = {});
  // find_client() the first time, then notify().
  Result<TransferCompleteNotification> notify(const InstanceId& instance, uint32_t rank,
                                              std::string_view bytes,
                                              const TransferOptions& options = {});

  // What arrived for this client, oldest first. They arrive at the first channel: to be called by
  // the thread that attached (or, once that thread has ended or released the channel, by any one
  // other); INVALID_ARGUMENT elsewhere. wait_ returns as soon as there is one, or empty at the
  // deadline.
  Result<std::vector<Notification>> poll_notifications();
  Result<std::vector<Notification>> wait_notifications(uint64_t deadline_ns);

  // --- Channels

  // This thread's channel: what the calls above use.
  Result<Channel> channel();
  // One more, of the calling thread. One that was given up counts against the engine's limit until
  // it has drained.
  Result<Channel> open_channel(const ChannelOptions& options = {});

  // --- State

  Result<std::vector<TransportInfo>> transports();
  EngineState engine_state() const;
  // Replaces AttachOptions::on_state.
  void set_state_callback(std::function<void(const EngineState&)> callback);

 private:
  explicit Client(std::shared_ptr<detail::Session> session) : session_(std::move(session)) {}

  std::shared_ptr<detail::Session> session_;
};

}  // namespace wherry
