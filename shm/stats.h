// The stats file's contents: what the engine counts and says of itself, for anybody to read.
//
// One file in the run directory, mapped writable by the engine only (StatsWriter), readable at any
// time, also after the engine's death (StatsReader). Every cell has one writer: a poller's row and
// the rows of its channels that poller's thread, all else the control thread. Offsets and counts of
// the tables are run-time values of the header. All bytes are zero at first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shm/counter.h"
#include "shm/histogram.h"
#include "shm/status.h"

namespace wherry::shm {

inline constexpr uint64_t kStatsMagic = 0x7972726568775357;  // "WSwherry", little endian
inline constexpr uint16_t kStatsMajor = 1;                   // must match
inline constexpr uint16_t kStatsMinor = 0;        // rows and header may have grown at their ends
inline constexpr uint32_t kStatsTransports = 5;   // transport ids 0 (none) to 4
inline constexpr uint32_t kStatsAlignment = 128;  // rows of different writers: two lines apart

enum class EngineState : uint32_t {
  kStarting = 0,
  kRunning = 1,
  kDraining = 2,
  kStopped = 3,
  kFailed = 4,
};
// "starting", ...; "unknown" for other numbers
std::string_view engine_state_name(EngineState state);

enum class PollerState : uint32_t { kUnused = 0, kRunning = 1, kAsleep = 2, kStopped = 3 };
std::string_view poller_state_name(PollerState state);

// As the engine numbers them: 0 busy, 1 adaptive, 2 sleep, 3 external; else "unknown".
std::string_view idle_strategy_text(uint32_t idle);

// Written by the poller's thread, but for index, cpu and idle_strategy, which the control thread
// sets before that thread starts.
struct alignas(kStatsAlignment) PollerStats {
  std::atomic<uint32_t> state;  // PollerState
  std::atomic<uint32_t> index;
  std::atomic<int32_t> cpu;  // -1 = not pinned
  std::atomic<uint32_t> idle_strategy;
  Counter turns;
  Counter busy_ns;          // in turns that found work
  Counter idle_ns;          // in turns that did not, and asleep
  Counter longest_turn_ns;  // time asleep not included
  Counter sleeps;
  Counter wakeups;                       // sleeps that an event ended
  Counter wakeups_by_timeout_with_work;  // that only the bound ended though work was there: a bug
  Counter records;                       // taken from submission rings
  Counter pairs;
  Counter runs;
  Counter batches;        // calls of post()
  Counter notifications;  // delivered
  Counter violations;
  Counter plan_hits;
  Counter plan_misses;
  Counter in_flight;  // requests accepted and not completed, now
  Counter reserved[8];
  Counter bytes[kStatsTransports];
  Counter completed[kStatsTransports][kCodeCount];
  alignas(64) Histogram latency_ns;  // record seen by the engine -> completion published
  alignas(64) Histogram queue_ns;    // record seen by the engine -> first run posted
};
static_assert(offsetof(PollerStats, turns) == 16 && offsetof(PollerStats, bytes) == 208);
static_assert(offsetof(PollerStats, completed) == 248 && offsetof(PollerStats, latency_ns) == 1408);
static_assert(sizeof(PollerStats) % kStatsAlignment == 0);

// One channel's share. Written by the channel's poller; zeroed by the control thread before the
// poller gets the channel.
struct alignas(kStatsAlignment) ChannelStats {
  Counter requests;
  Counter completed;
  Counter failed;
  Counter pairs;
  Counter bytes;
  Counter notifications;
  Counter wakes;
  Counter violations;
  Counter deadline_misses;
  Counter cancels;
  Counter reserved[6];
};
static_assert(sizeof(ChannelStats) == 128);

enum class RowState : uint32_t { kFree = 0, kUsed = 1 };

inline constexpr uint32_t kClientStalled = 1;   // flags of a ClientRow: does not reap
inline constexpr uint32_t kClientDraining = 2;  // its session is ending

// An attached client. Channel c of it counts in ChannelStats row first_channel + c.
struct alignas(kStatsAlignment) ClientRow {
  RowVersion version;
  std::atomic<uint32_t> state;  // RowState
  std::atomic<uint32_t> flags;
  Counter session;
  Counter incarnation;
  SharedText<64> instance;
  std::atomic<uint32_t> rank;
  std::atomic<uint32_t> pid;  // as the engine's PID namespace sees it; 0 = not visible there
  std::atomic<uint32_t> uid;
  std::atomic<uint32_t> first_channel;
  std::atomic<uint32_t> channel_capacity;  // rows set aside
  std::atomic<uint32_t> channels;          // open now
  Counter attached_wall_ns;
  Counter regions;
  Counter layouts;
  Counter registered_bytes;
  Counter reserved[9];
};
static_assert(offsetof(ClientRow, instance) == 32 && offsetof(ClientRow, attached_wall_ns) == 120);
static_assert(sizeof(ClientRow) == 256);

// A counter of the control thread, with a name of its own. Labels are "key=value,key=value".
struct alignas(kStatsAlignment) CounterRow {
  RowVersion version;
  std::atomic<uint32_t> state;  // RowState
  std::atomic<uint32_t> reserved32;
  Counter value;
  SharedText<64> name;
  SharedText<128> labels;
  SharedText<16> unit;
  Counter reserved[3];
};
static_assert(offsetof(CounterRow, name) == 24 && sizeof(CounterRow) == 256);

// A transport; the row's number is its id.
struct alignas(kStatsAlignment) TransportRow {
  RowVersion version;
  std::atomic<uint32_t> state;  // RowState
  std::atomic<uint32_t> level;
  std::atomic<uint32_t> available;  // 0 or 1
  std::atomic<uint32_t> reserved32;
  SharedText<16> name;
  SharedText<128> reason;  // why it is not available
  SharedText<64> info;
  Counter reserved[3];
};
static_assert(offsetof(TransportRow, name) == 24 && sizeof(TransportRow) == 256);

// A peer engine or a device.
struct alignas(kStatsAlignment) LinkRow {
  RowVersion version;
  std::atomic<uint32_t> state;       // RowState
  std::atomic<uint32_t> link_state;  // the owner's own numbering
  SharedText<64> name;
  SharedText<16> state_name;
  Counter incarnation;
  Counter bytes_in;
  Counter bytes_out;
  Counter errors;
  Counter reserved[16];
};
static_assert(offsetof(LinkRow, name) == 16 && sizeof(LinkRow) == 256);

enum class StatsTable : uint32_t {
  kPollers = 0,
  kChannels = 1,
  kClients = 2,
  kCounters = 3,
  kTransports = 4,
  kPeers = 5,
  kDevices = 6,
};
inline constexpr uint32_t kStatsTables = 7;

struct TableRef {
  std::atomic<uint64_t> offset;  // from the start of the file
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> row_bytes;  // at least what this build knows of a row
};
static_assert(sizeof(TableRef) == 16);

struct StatsHeader {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> version;  // major << 16 | minor; stored last, 0 = the file is not ready
  std::atomic<uint32_t> header_bytes;
  std::atomic<uint64_t> total_bytes;
  std::atomic<uint64_t> pid;
  std::atomic<uint64_t> incarnation;
  std::atomic<uint64_t> start_wall_ns;
  std::atomic<uint64_t> start_monotonic_ns;
  std::atomic<uint64_t> error_log_offset;
  std::atomic<uint64_t> error_log_bytes;
  SharedText<64> build;
  SharedText<64> engine_name;
  TableRef tables[8];  // by StatsTable
  // What changes while the engine runs. The version covers state and reason.
  alignas(kStatsAlignment) RowVersion state_version;
  std::atomic<uint32_t> state;  // EngineState
  std::atomic<uint32_t> reserved32;
  SharedText<256> reason;
  alignas(kStatsAlignment) Counter beats;
  Counter beat_wall_ns;  // when the last one was
  Counter reserved[14];
};
static_assert(offsetof(StatsHeader, build) == 72 && offsetof(StatsHeader, tables) == 200);
static_assert(offsetof(StatsHeader, state_version) == 384 && offsetof(StatsHeader, beats) == 768);
static_assert(sizeof(StatsHeader) == 896);

}  // namespace wherry::shm
