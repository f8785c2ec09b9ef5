// StatsWriter: the engine's side of the stats file.
//
// Made and used by the control thread; the rows it hands out are written by whom stats.h names. The
// file appears whole, by rename, so a reader never meets half a file; the one it replaces lives on
// for those who have it open, and its error log is exported first. Only create() fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shm/error_log.h"
#include "shm/segment.h"
#include "shm/stats.h"
#include "shm/status.h"

namespace wherry::shm {

inline constexpr uint32_t kKeptErrorLogs =
    8;  // errors-<start time>.log files beside the stats file

struct StatsOptions {
  std::string engine_name;
  uint64_t incarnation = 0;
  // Rows of the tables.
  uint32_t pollers = 1;
  uint32_t clients = 64;
  uint32_t channels_per_client = 16;
  uint32_t counters = 512;
  uint32_t peers = 0;
  uint32_t devices = 0;
  // Nanoseconds; null = CLOCK_MONOTONIC and CLOCK_REALTIME.
  std::function<uint64_t()> monotonic_clock;
  std::function<uint64_t()> wall_clock;
};

struct StatsClient {
  std::string instance;
  uint64_t session = 0;
  uint64_t incarnation = 0;
  uint32_t rank = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
};

class StatsWriter {
 public:
  // State `starting`, no rows in use. NO_RESOURCES names what is short and where; INVALID_ARGUMENT
  // a count of 0 where one is needed.
  static Result<StatsWriter> create(const std::string& path, const StatsOptions& options);

  StatsWriter() = default;
  StatsWriter(StatsWriter&&) = default;
  StatsWriter& operator=(StatsWriter&&) = default;

  // The text file that the former engine's errors went to, or empty; and why that failed, or empty.
  const std::string& exported_errors() const { return exported_errors_; }
  const std::string& export_problem() const { return export_problem_; }

  void set_state(EngineState state, std::string_view reason);
  void beat();

  // The row of poller `index` (below options.pollers), for its thread to write. `cpu` -1 = not
  // pinned.
  PollerStats* add_poller(uint32_t index, int32_t cpu, uint32_t idle_strategy);

  // A row for a client, or null when all are used. Set its flags, channels, regions, layouts and
  // registered_bytes directly.
  ClientRow* add_client(const StatsClient& client);
  // After the client's last channel was closed.
  void remove_client(ClientRow* row);
  // What a client's channel counts in, or null beyond options.channels_per_client. Zero for a new
  // client; a channel opened in the place of a closed one goes on counting.
  ChannelStats* channel(const ClientRow* row, uint32_t channel);

  // The counter of that name and labels ("key=value,..."), made when it is not there. Never null:
  // with the table full it is one that no reader sees. Valid until remove_counter; a removed row is
  // given to another counter after a second at the earliest, so that nobody takes one for the
  // other.
  Counter* add_counter(std::string_view name, std::string_view labels = "",
                       std::string_view unit = "");
  void remove_counter(Counter* counter);

  // `id` is below kStatsTransports.
  void set_transport(uint32_t id, std::string_view name, uint32_t level, bool available,
                     std::string_view reason, std::string_view info);

  // An error that cannot be recorded is counted in errors_unrecordable_total.
  void record_error(ErrorId error, std::string_view subject, std::string_view text);

  // The mapping, for the SIGBUS handler: it may put other memory there, which this writes on
  // without anybody to read it.
  std::byte* address() const { return mapping_.data(); }
  uint64_t bytes() const { return mapping_.size(); }
  const StatsHeader& header() const { return *mapping_.at<StatsHeader>(0); }

 private:
  struct CounterUse {
    std::string key;           // name, NUL, labels; empty = free
    uint64_t reusable_at = 0;  // when free: not before
  };

  template <typename Row>
  Row* rows(StatsTable table) const {
    return mapping_.at<Row>(offsets_[static_cast<uint32_t>(table)]);
  }
  Status make_file(const std::string& path);
  void save_former_errors(const std::string& path);
  void fill_header();

  MappedSegment mapping_;
  StatsOptions options_;
  // Private, so that the mapping is never asked where things are.
  std::array<uint64_t, kStatsTables> offsets_{};
  uint64_t error_log_offset_ = 0;
  uint64_t total_bytes_ = 0;
  ErrorLogWriter errors_;
  std::vector<CounterUse> counter_uses_;
  std::vector<bool> client_uses_;
  std::unique_ptr<Counter> unseen_;  // stands in when the counter table is full
  Counter* unrecordable_ = nullptr;
  std::string exported_errors_;
  std::string export_problem_;
};

}  // namespace wherry::shm
