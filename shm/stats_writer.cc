#include "shm/stats_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "shm/file_descriptor.h"
#include "shm/memory_limits.h"
#include "shm/stats_reader.h"
#include "shm/text.h"

namespace wherry::shm {
namespace {

constexpr uint64_t kMaxStatsBytes = 1ull << 30;
constexpr uint64_t kReuseAfterNs = 1'000'000'000;
constexpr std::string_view kLogPrefix = "errors-";
constexpr std::string_view kLogSuffix = ".log";

uint64_t read_clock(clockid_t id) {
  struct timespec now {};
  clock_gettime(id, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

struct TableShape {
  uint64_t count;
  uint32_t row_bytes;
};

// By StatsTable.
std::array<TableShape, kStatsTables> table_shapes(const StatsOptions& options) {
  return {{
      {options.pollers, sizeof(PollerStats)},
      {uint64_t{options.clients} * options.channels_per_client, sizeof(ChannelStats)},
      {options.clients, sizeof(ClientRow)},
      {options.counters, sizeof(CounterRow)},
      {kStatsTransports, sizeof(TransportRow)},
      {options.peers, sizeof(LinkRow)},
      {options.devices, sizeof(LinkRow)},
  }};
}

std::string build_text() {
#if defined(__clang__)
  return "Wherry " WHERRY_VERSION " (clang " __clang_version__ ")";
#else
  return "Wherry " WHERRY_VERSION " (gcc " __VERSION__ ")";
#endif
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Their names sort by time: all but the newest go.
void remove_old_logs(const std::string& directory) {
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return;
  std::vector<std::string> names;
  while (const struct dirent* entry = readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.size() > kLogPrefix.size() + kLogSuffix.size() &&
        name.substr(0, kLogPrefix.size()) == kLogPrefix &&
        name.substr(name.size() - kLogSuffix.size()) == kLogSuffix) {
      names.emplace_back(name);
    }
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i + kKeptErrorLogs < names.size(); ++i) {
    unlink((directory + "/" + names[i]).c_str());
  }
}

Status in_the_way(const std::string& path, int error) {
  return {Code::kNoResources, "stats file " + path + ": wanted to make it, got " +
                                  std::strerror(error) +
                                  "; remove it, or choose another run directory"};
}

// posix_fallocate: also where a file system cannot reserve, the blocks are there afterwards.
int allocate(int fd, uint64_t bytes) {
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  return error;
}

}  // namespace

Result<StatsWriter> StatsWriter::create(const std::string& path, const StatsOptions& options) {
  StatsWriter writer;
  writer.options_ = options;
  if (!options.monotonic_clock) {
    writer.options_.monotonic_clock = [] { return read_clock(CLOCK_MONOTONIC); };
  }
  if (!options.wall_clock) {
    writer.options_.wall_clock = [] { return read_clock(CLOCK_REALTIME); };
  }
  uint64_t end = sizeof(StatsHeader);
  const auto shapes = table_shapes(options);
  for (uint32_t i = 0; i < kStatsTables; ++i) {
    writer.offsets_[i] = end;
    const uint64_t room = kMaxStatsBytes - end;
    if (shapes[i].count > room / shapes[i].row_bytes) {
      return Status(Code::kInvalidArgument,
                    "stats file: wanted at most " + std::to_string(kMaxStatsBytes) +
                        " bytes, got more for " + std::to_string(options.pollers) + " pollers, " +
                        std::to_string(options.clients) + " clients of " +
                        std::to_string(options.channels_per_client) +
                        " channels; allow fewer clients or channels");
    }
    end += shapes[i].count * shapes[i].row_bytes;
  }
  writer.error_log_offset_ = end;
  writer.total_bytes_ = round_up(end + kErrorLogBytes, kSegmentPage);

  writer.save_former_errors(path);
  if (Status status = writer.make_file(path); !status.ok()) return status;
  return writer;
}

void StatsWriter::save_former_errors(const std::string& path) {
  const Result<StatsReader> former = StatsReader::open(path);
  if (!former.ok()) {
    if (former.code() != Code::kUnreachable) export_problem_ = former.status().to_string();
    return;
  }
  const std::vector<ErrorRecord> records = former->errors();
  if (records.empty()) return;
  const StatsIdentity& who = former->identity();
  std::string start = utc_text(who.start_wall_ns);
  std::replace(start.begin(), start.end(), ':', '-');
  const std::string directory = directory_of(path);
  const std::string log =
      directory + "/" + std::string(kLogPrefix) + start + std::string(kLogSuffix);
  const std::string title = "errors of engine " + who.engine_name + ", pid " +
                            std::to_string(who.pid) + ", started " + utc_text(who.start_wall_ns) +
                            ", " + who.build;
  if (Status status = export_error_log(records, title, log); !status.ok()) {
    export_problem_ = status.to_string();
    return;
  }
  exported_errors_ = log;
  remove_old_logs(directory);
}

Status StatsWriter::make_file(const std::string& path) {
  if (Status status = check_memory_available(total_bytes_); !status.ok()) {
    return status.with_context("stats file " + path);
  }
  const std::string unfinished = path + ".new";
  unlink(unfinished.c_str());  // of an engine that died here; the run directory is ours alone
  UniqueFd fd(open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return in_the_way(unfinished, errno);
  const auto give_up = [&](Status status) {
    unlink(unfinished.c_str());
    return status;
  };
  if (const int error = allocate(fd.get(), total_bytes_); error != 0) {
    return give_up(errno_status(Code::kNoResources,
                                "stats file " + path + ": allocating " +
                                    std::to_string(total_bytes_) +
                                    " bytes; make room there or choose another run directory",
                                error));
  }
  Result<MappedSegment> mapping = MappedSegment::map(fd.get(), total_bytes_, Access::kReadWrite);
  if (!mapping.ok()) return give_up(mapping.status().with_context("stats file " + path));
  mapping_ = std::move(*mapping);

  errors_ = ErrorLogWriter(address() + error_log_offset_, kErrorLogBytes);
  counter_uses_.resize(options_.counters);
  client_uses_.resize(options_.clients);
  unseen_ = std::make_unique<Counter>();
  fill_header();
  unrecordable_ = add_counter("errors_unrecordable_total");
  // Only now, with everything else in place, is the file one of ours.
  mapping_.at<StatsHeader>(0)->version.store(uint32_t{kStatsMajor} << 16 | kStatsMinor,
                                             std::memory_order_release);
  if (rename(unfinished.c_str(), path.c_str()) != 0) {
    return give_up(in_the_way(path, errno));
  }
  return {};
}

// Relaxed: the version word is stored after all of this, with release.
void StatsWriter::fill_header() {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  auto* header = mapping_.at<StatsHeader>(0);
  header->magic.store(kStatsMagic, kRelaxed);
  header->header_bytes.store(sizeof(StatsHeader), kRelaxed);
  header->total_bytes.store(total_bytes_, kRelaxed);
  header->pid.store(static_cast<uint64_t>(getpid()), kRelaxed);
  header->incarnation.store(options_.incarnation, kRelaxed);
  header->start_wall_ns.store(options_.wall_clock(), kRelaxed);
  header->start_monotonic_ns.store(options_.monotonic_clock(), kRelaxed);
  header->error_log_offset.store(error_log_offset_, kRelaxed);
  header->error_log_bytes.store(kErrorLogBytes, kRelaxed);
  header->build.set(build_text());
  header->engine_name.set(options_.engine_name);
  const auto shapes = table_shapes(options_);
  for (uint32_t i = 0; i < kStatsTables; ++i) {
    header->tables[i].offset.store(offsets_[i], kRelaxed);
    header->tables[i].count.store(static_cast<uint32_t>(shapes[i].count), kRelaxed);
    header->tables[i].row_bytes.store(shapes[i].row_bytes, kRelaxed);
  }
  beat();
}

void StatsWriter::set_state(EngineState state, std::string_view reason) {
  auto* header = mapping_.at<StatsHeader>(0);
  header->state_version.begin_write();
  header->state.store(static_cast<uint32_t>(state), std::memory_order_release);
  header->reason.set(reason);
  header->state_version.end_write();
}

void StatsWriter::beat() {
  auto* header = mapping_.at<StatsHeader>(0);
  header->beat_wall_ns.set(options_.wall_clock());
  header->beats.add(1);
}

PollerStats* StatsWriter::add_poller(uint32_t index, int32_t cpu, uint32_t idle_strategy) {
  PollerStats* row = rows<PollerStats>(StatsTable::kPollers) + index;
  row->index.store(index, std::memory_order_release);
  row->cpu.store(cpu, std::memory_order_release);
  row->idle_strategy.store(idle_strategy, std::memory_order_release);
  row->state.store(static_cast<uint32_t>(PollerState::kRunning), std::memory_order_release);
  return row;
}

ClientRow* StatsWriter::add_client(const StatsClient& client) {
  const auto free = std::find(client_uses_.begin(), client_uses_.end(), false);
  if (free == client_uses_.end()) return nullptr;
  *free = true;
  const auto index = static_cast<uint32_t>(free - client_uses_.begin());
  ClientRow* row = rows<ClientRow>(StatsTable::kClients) + index;
  constexpr auto kRelease = std::memory_order_release;
  row->version.begin_write();
  row->flags.store(0, kRelease);
  row->session.set(client.session);
  row->incarnation.set(client.incarnation);
  row->instance.set(client.instance);
  row->rank.store(client.rank, kRelease);
  row->pid.store(client.pid, kRelease);
  row->uid.store(client.uid, kRelease);
  row->first_channel.store(index * options_.channels_per_client, kRelease);
  row->channel_capacity.store(options_.channels_per_client, kRelease);
  row->channels.store(0, kRelease);
  row->attached_wall_ns.set(options_.wall_clock());
  row->regions.set(0);
  row->layouts.set(0);
  row->registered_bytes.set(0);
  for (uint32_t i = 0; i < options_.channels_per_client; ++i) {
    ChannelStats* counters = channel(row, i);
    for (Counter* counter :
         {&counters->requests, &counters->completed, &counters->failed, &counters->pairs,
          &counters->bytes, &counters->notifications, &counters->wakes, &counters->violations,
          &counters->deadline_misses, &counters->cancels}) {
      counter->set(0);
    }
  }
  row->state.store(static_cast<uint32_t>(RowState::kUsed), kRelease);
  row->version.end_write();
  return row;
}

void StatsWriter::remove_client(ClientRow* row) {
  row->version.begin_write();
  row->state.store(static_cast<uint32_t>(RowState::kFree), std::memory_order_release);
  row->version.end_write();
  client_uses_[static_cast<size_t>(row - rows<ClientRow>(StatsTable::kClients))] = false;
}

ChannelStats* StatsWriter::channel(const ClientRow* row, uint32_t channel) {
  if (channel >= options_.channels_per_client) return nullptr;
  const auto client = static_cast<size_t>(row - rows<ClientRow>(StatsTable::kClients));
  return rows<ChannelStats>(StatsTable::kChannels) + client * options_.channels_per_client +
         channel;
}

Counter* StatsWriter::add_counter(std::string_view name, std::string_view labels,
                                  std::string_view unit) {
  auto* table = rows<CounterRow>(StatsTable::kCounters);
  const std::string key = std::string(name).append(1, '\0').append(labels);
  const uint64_t now = options_.monotonic_clock();
  size_t chosen = counter_uses_.size();
  for (size_t i = 0; i < counter_uses_.size(); ++i) {
    const CounterUse& use = counter_uses_[i];
    if (use.key == key) return &table[i].value;
    const bool usable = use.key.empty() && now >= use.reusable_at;
    if (usable && chosen == counter_uses_.size()) chosen = i;
  }
  if (chosen == counter_uses_.size()) return unseen_.get();
  counter_uses_[chosen].key = key;
  CounterRow& row = table[chosen];
  row.version.begin_write();
  row.value.set(0);
  row.name.set(name);
  row.labels.set(labels);
  row.unit.set(unit);
  row.state.store(static_cast<uint32_t>(RowState::kUsed), std::memory_order_release);
  row.version.end_write();
  return &row.value;
}

void StatsWriter::remove_counter(Counter* counter) {
  auto* table = rows<CounterRow>(StatsTable::kCounters);
  for (size_t i = 0; i < counter_uses_.size(); ++i) {
    if (&table[i].value != counter) continue;
    table[i].version.begin_write();
    table[i].state.store(static_cast<uint32_t>(RowState::kFree), std::memory_order_release);
    table[i].version.end_write();
    counter_uses_[i] = {"", options_.monotonic_clock() + kReuseAfterNs};
  }
}

void StatsWriter::set_transport(uint32_t id, std::string_view name, uint32_t level, bool available,
                                std::string_view reason, std::string_view info) {
  TransportRow& row = rows<TransportRow>(StatsTable::kTransports)[id];
  row.version.begin_write();
  row.level.store(level, std::memory_order_release);
  row.available.store(available ? 1 : 0, std::memory_order_release);
  row.name.set(name);
  row.reason.set(reason);
  row.info.set(info);
  row.state.store(static_cast<uint32_t>(RowState::kUsed), std::memory_order_release);
  row.version.end_write();
}

void StatsWriter::record_error(ErrorId error, std::string_view subject, std::string_view text) {
  if (!errors_.record(error, subject, text, options_.wall_clock())) unrecordable_->add(1);
}

}  // namespace wherry::shm
