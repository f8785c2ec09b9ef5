#include "shm/golden.h"

#include <cstddef>

#include "shm/error_log.h"
#include "shm/histogram.h"
#include "shm/layout.h"
#include "shm/slot.h"
#include "shm/stats.h"
#include "shm/words.h"

// offsetof takes its operands as they are written.
#define WHERRY_STRUCT(type) begin_struct(text, #type, sizeof(type), alignof(type))
#define WHERRY_FIELD(type, field) \
  add_field(text, #field, offsetof(type, field), sizeof(type::field))

namespace wherry::shm {
namespace {

void begin_struct(std::string& text, const char* name, size_t size, size_t alignment) {
  text.append(name).append(" size ").append(std::to_string(size));
  text.append(" align ").append(std::to_string(alignment)).append("\n");
}

void add_field(std::string& text, const char* name, size_t offset, size_t size) {
  text.append("  ").append(std::to_string(offset)).append("+").append(std::to_string(size));
  text.append(" ").append(name).append("\n");
}

void add_segments(std::string& text) {
  WHERRY_STRUCT(SegmentHeader);
  WHERRY_FIELD(SegmentHeader, magic);
  WHERRY_FIELD(SegmentHeader, layout_major);
  WHERRY_FIELD(SegmentHeader, layout_minor);
  WHERRY_FIELD(SegmentHeader, kind);
  WHERRY_FIELD(SegmentHeader, features);
  WHERRY_FIELD(SegmentHeader, total_bytes);
  WHERRY_FIELD(SegmentHeader, engine_incarnation);
  WHERRY_FIELD(SegmentHeader, session);
  WHERRY_FIELD(SegmentHeader, channel);
  WHERRY_FIELD(SegmentHeader, submission_slots);
  WHERRY_FIELD(SegmentHeader, completion_slots);
  WHERRY_FIELD(SegmentHeader, notification_slots);
  WHERRY_FIELD(SegmentHeader, words_offset);
  WHERRY_FIELD(SegmentHeader, submission_offset);
  WHERRY_FIELD(SegmentHeader, completion_offset);
  WHERRY_FIELD(SegmentHeader, notification_offset);
  WHERRY_FIELD(SegmentHeader, inflight_offset);
  WHERRY_FIELD(SegmentHeader, counters_offset);
  WHERRY_FIELD(SegmentHeader, reserved);

  WHERRY_STRUCT(ClientWords);
  WHERRY_FIELD(ClientWords, reap_cursor);
  WHERRY_FIELD(ClientWords, sleeping);
  WHERRY_FIELD(ClientWords, notification_cursor);
  WHERRY_FIELD(ClientWords, cancel_tail);
  WHERRY_FIELD(ClientWords, cancel_ids);
  WHERRY_FIELD(ClientWords, submission_tail);

  WHERRY_STRUCT(EngineWords);
  WHERRY_FIELD(EngineWords, submission_head);
  WHERRY_FIELD(EngineWords, doorbell_wanted);
  WHERRY_FIELD(EngineWords, wake);
  WHERRY_FIELD(EngineWords, state);
  WHERRY_FIELD(EngineWords, cpu);
  WHERRY_FIELD(EngineWords, cancel_head);
  WHERRY_FIELD(EngineWords, completion_tail);

  WHERRY_STRUCT(ChannelCounters);
  WHERRY_FIELD(ChannelCounters, requests);
  WHERRY_FIELD(ChannelCounters, completed);
  WHERRY_FIELD(ChannelCounters, failed);
  WHERRY_FIELD(ChannelCounters, pairs);
  WHERRY_FIELD(ChannelCounters, bytes);
  WHERRY_FIELD(ChannelCounters, notifications);
  WHERRY_FIELD(ChannelCounters, wakes);
  WHERRY_FIELD(ChannelCounters, reserved);
}

void add_records(std::string& text) {
  WHERRY_STRUCT(Slot);
  WHERRY_FIELD(Slot, sequence);
  WHERRY_FIELD(Slot, payload);

  WHERRY_STRUCT(BlockPair);
  WHERRY_FIELD(BlockPair, source);
  WHERRY_FIELD(BlockPair, destination);

  WHERRY_STRUCT(SubmitHead);
  WHERRY_FIELD(SubmitHead, op);
  WHERRY_FIELD(SubmitHead, flags);
  WHERRY_FIELD(SubmitHead, priority);
  WHERRY_FIELD(SubmitHead, required_transport);
  WHERRY_FIELD(SubmitHead, pair_count);
  WHERRY_FIELD(SubmitHead, source);
  WHERRY_FIELD(SubmitHead, destination);
  WHERRY_FIELD(SubmitHead, deadline_ns);
  WHERRY_FIELD(SubmitHead, layer_first);
  WHERRY_FIELD(SubmitHead, layer_end);
  WHERRY_FIELD(SubmitHead, slot_count);
  WHERRY_FIELD(SubmitHead, notification_bytes);
  WHERRY_FIELD(SubmitHead, first_pair);
  WHERRY_FIELD(SubmitHead, reserved);

  WHERRY_STRUCT(RangeEntry);
  WHERRY_FIELD(RangeEntry, source_offset);
  WHERRY_FIELD(RangeEntry, destination_offset);
  WHERRY_FIELD(RangeEntry, length);

  WHERRY_STRUCT(FailedEntry);
  WHERRY_FIELD(FailedEntry, pair);
  WHERRY_FIELD(FailedEntry, status);
  WHERRY_FIELD(FailedEntry, wc_status);
  WHERRY_FIELD(FailedEntry, error_number);

  WHERRY_STRUCT(CompletionHead);
  WHERRY_FIELD(CompletionHead, request_id);
  WHERRY_FIELD(CompletionHead, bytes);
  WHERRY_FIELD(CompletionHead, start_ns);
  WHERRY_FIELD(CompletionHead, end_ns);
  WHERRY_FIELD(CompletionHead, failed_count);
  WHERRY_FIELD(CompletionHead, vendor_error);
  WHERRY_FIELD(CompletionHead, status);
  WHERRY_FIELD(CompletionHead, wc_status);
  WHERRY_FIELD(CompletionHead, transport);
  WHERRY_FIELD(CompletionHead, quiet);
  WHERRY_FIELD(CompletionHead, device);
  WHERRY_FIELD(CompletionHead, error_number);
  WHERRY_FIELD(CompletionHead, first_failed);

  WHERRY_STRUCT(NotificationHead);
  WHERRY_FIELD(NotificationHead, sequence);
  WHERRY_FIELD(NotificationHead, sender_session);
  WHERRY_FIELD(NotificationHead, sender_rank);
  WHERRY_FIELD(NotificationHead, slot_count);
  WHERRY_FIELD(NotificationHead, name_bytes);
  WHERRY_FIELD(NotificationHead, message_bytes);
  WHERRY_FIELD(NotificationHead, reserved16);
  WHERRY_FIELD(NotificationHead, reserved32);
  WHERRY_FIELD(NotificationHead, reserved);
}

void add_stats(std::string& text) {
  WHERRY_STRUCT(StatsHeader);
  WHERRY_FIELD(StatsHeader, magic);
  WHERRY_FIELD(StatsHeader, version);
  WHERRY_FIELD(StatsHeader, header_bytes);
  WHERRY_FIELD(StatsHeader, total_bytes);
  WHERRY_FIELD(StatsHeader, pid);
  WHERRY_FIELD(StatsHeader, incarnation);
  WHERRY_FIELD(StatsHeader, start_wall_ns);
  WHERRY_FIELD(StatsHeader, start_monotonic_ns);
  WHERRY_FIELD(StatsHeader, error_log_offset);
  WHERRY_FIELD(StatsHeader, error_log_bytes);
  WHERRY_FIELD(StatsHeader, build);
  WHERRY_FIELD(StatsHeader, engine_name);
  WHERRY_FIELD(StatsHeader, tables);
  WHERRY_FIELD(StatsHeader, state_version);
  WHERRY_FIELD(StatsHeader, state);
  WHERRY_FIELD(StatsHeader, reserved32);
  WHERRY_FIELD(StatsHeader, reason);
  WHERRY_FIELD(StatsHeader, beats);
  WHERRY_FIELD(StatsHeader, beat_wall_ns);
  WHERRY_FIELD(StatsHeader, reserved);

  WHERRY_STRUCT(TableRef);
  WHERRY_FIELD(TableRef, offset);
  WHERRY_FIELD(TableRef, count);
  WHERRY_FIELD(TableRef, row_bytes);

  WHERRY_STRUCT(PollerStats);
  WHERRY_FIELD(PollerStats, state);
  WHERRY_FIELD(PollerStats, index);
  WHERRY_FIELD(PollerStats, cpu);
  WHERRY_FIELD(PollerStats, idle_strategy);
  WHERRY_FIELD(PollerStats, turns);
  WHERRY_FIELD(PollerStats, busy_ns);
  WHERRY_FIELD(PollerStats, idle_ns);
  WHERRY_FIELD(PollerStats, longest_turn_ns);
  WHERRY_FIELD(PollerStats, sleeps);
  WHERRY_FIELD(PollerStats, wakeups);
  WHERRY_FIELD(PollerStats, wakeups_by_timeout_with_work);
  WHERRY_FIELD(PollerStats, records);
  WHERRY_FIELD(PollerStats, pairs);
  WHERRY_FIELD(PollerStats, runs);
  WHERRY_FIELD(PollerStats, batches);
  WHERRY_FIELD(PollerStats, notifications);
  WHERRY_FIELD(PollerStats, violations);
  WHERRY_FIELD(PollerStats, plan_hits);
  WHERRY_FIELD(PollerStats, plan_misses);
  WHERRY_FIELD(PollerStats, in_flight);
  WHERRY_FIELD(PollerStats, reserved);
  WHERRY_FIELD(PollerStats, bytes);
  WHERRY_FIELD(PollerStats, completed);
  WHERRY_FIELD(PollerStats, latency_ns);
  WHERRY_FIELD(PollerStats, queue_ns);

  WHERRY_STRUCT(ChannelStats);
  WHERRY_FIELD(ChannelStats, requests);
  WHERRY_FIELD(ChannelStats, completed);
  WHERRY_FIELD(ChannelStats, failed);
  WHERRY_FIELD(ChannelStats, pairs);
  WHERRY_FIELD(ChannelStats, bytes);
  WHERRY_FIELD(ChannelStats, notifications);
  WHERRY_FIELD(ChannelStats, wakes);
  WHERRY_FIELD(ChannelStats, violations);
  WHERRY_FIELD(ChannelStats, deadline_misses);
  WHERRY_FIELD(ChannelStats, cancels);
  WHERRY_FIELD(ChannelStats, reserved);

  WHERRY_STRUCT(ClientRow);
  WHERRY_FIELD(ClientRow, version);
  WHERRY_FIELD(ClientRow, state);
  WHERRY_FIELD(ClientRow, flags);
  WHERRY_FIELD(ClientRow, session);
  WHERRY_FIELD(ClientRow, incarnation);
  WHERRY_FIELD(ClientRow, instance);
  WHERRY_FIELD(ClientRow, rank);
  WHERRY_FIELD(ClientRow, pid);
  WHERRY_FIELD(ClientRow, uid);
  WHERRY_FIELD(ClientRow, first_channel);
  WHERRY_FIELD(ClientRow, channel_capacity);
  WHERRY_FIELD(ClientRow, channels);
  WHERRY_FIELD(ClientRow, attached_wall_ns);
  WHERRY_FIELD(ClientRow, regions);
  WHERRY_FIELD(ClientRow, layouts);
  WHERRY_FIELD(ClientRow, registered_bytes);
  WHERRY_FIELD(ClientRow, reserved);
}

void add_stats_tables(std::string& text) {
  WHERRY_STRUCT(CounterRow);
  WHERRY_FIELD(CounterRow, version);
  WHERRY_FIELD(CounterRow, state);
  WHERRY_FIELD(CounterRow, reserved32);
  WHERRY_FIELD(CounterRow, value);
  WHERRY_FIELD(CounterRow, name);
  WHERRY_FIELD(CounterRow, labels);
  WHERRY_FIELD(CounterRow, unit);
  WHERRY_FIELD(CounterRow, reserved);

  WHERRY_STRUCT(TransportRow);
  WHERRY_FIELD(TransportRow, version);
  WHERRY_FIELD(TransportRow, state);
  WHERRY_FIELD(TransportRow, level);
  WHERRY_FIELD(TransportRow, available);
  WHERRY_FIELD(TransportRow, reserved32);
  WHERRY_FIELD(TransportRow, name);
  WHERRY_FIELD(TransportRow, reason);
  WHERRY_FIELD(TransportRow, info);
  WHERRY_FIELD(TransportRow, reserved);

  WHERRY_STRUCT(LinkRow);
  WHERRY_FIELD(LinkRow, version);
  WHERRY_FIELD(LinkRow, state);
  WHERRY_FIELD(LinkRow, link_state);
  WHERRY_FIELD(LinkRow, name);
  WHERRY_FIELD(LinkRow, state_name);
  WHERRY_FIELD(LinkRow, incarnation);
  WHERRY_FIELD(LinkRow, bytes_in);
  WHERRY_FIELD(LinkRow, bytes_out);
  WHERRY_FIELD(LinkRow, errors);
  WHERRY_FIELD(LinkRow, reserved);

  WHERRY_STRUCT(ErrorEntry);
  WHERRY_FIELD(ErrorEntry, version);
  WHERRY_FIELD(ErrorEntry, error);
  WHERRY_FIELD(ErrorEntry, reserved32);
  WHERRY_FIELD(ErrorEntry, count);
  WHERRY_FIELD(ErrorEntry, first_wall_ns);
  WHERRY_FIELD(ErrorEntry, last_wall_ns);
  WHERRY_FIELD(ErrorEntry, subject);
  WHERRY_FIELD(ErrorEntry, text);
  WHERRY_FIELD(ErrorEntry, reserved);

  WHERRY_STRUCT(Histogram);
  WHERRY_FIELD(Histogram, buckets);
  WHERRY_FIELD(Histogram, sum_ns);
  WHERRY_FIELD(Histogram, max_ns);
}

}  // namespace

std::string describe_layout() {
  std::string text;
  add_segments(text);
  add_records(text);
  add_stats(text);
  add_stats_tables(text);
  return text;
}

}  // namespace wherry::shm
