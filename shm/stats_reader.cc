#include "shm/stats_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "shm/file_descriptor.h"

namespace wherry::shm {
namespace {

// Rows of this build, by StatsTable: a file's rows may be longer, not shorter.
constexpr uint32_t kRowBytes[kStatsTables] = {
    sizeof(PollerStats),  sizeof(ChannelStats), sizeof(ClientRow), sizeof(CounterRow),
    sizeof(TransportRow), sizeof(LinkRow),      sizeof(LinkRow),
};

bool used(const std::atomic<uint32_t>& state) {
  return state.load(std::memory_order_acquire) == static_cast<uint32_t>(RowState::kUsed);
}

}  // namespace

Result<StatsReader> StatsReader::open(const std::string& path) {
  // O_NONBLOCK: a pipe of that name must not hold us up.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    return errno_status(absent ? Code::kUnreachable : Code::kNotPermitted,
                        "opening the stats file " + path, error);
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return errno_status(Code::kNotPermitted, "looking at " + path, errno);
  }
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || bytes < sizeof(StatsHeader)) {
    return Status(Code::kInvalidArgument,
                  path + ": wanted a stats file of at least " +
                      std::to_string(sizeof(StatsHeader)) + " bytes, got " +
                      (S_ISREG(info.st_mode) ? std::to_string(bytes) + " bytes" : "no file") +
                      "; name the file `stats` of a run directory");
  }
  Result<MappedSegment> mapping = MappedSegment::map(fd.get(), bytes, Access::kRead);
  if (!mapping.ok()) return mapping.status().with_context(path);
  StatsReader reader;
  reader.mapping_ = std::move(*mapping);
  if (Status status = reader.check(bytes); !status.ok()) return status.with_context(path);
  return reader;
}

Status StatsReader::check(uint64_t file_bytes) {
  const StatsHeader& header = this->header();
  // Acquire: all that the writer stored before it is there. What follows never changes after that.
  const uint32_t version = header.version.load(std::memory_order_acquire);
  const uint64_t magic = header.magic.load(std::memory_order_relaxed);
  if (magic != kStatsMagic) {
    return {Code::kInvalidArgument,
            "wanted Wherry's magic number, got another; this is not a stats file"};
  }
  if (version == 0) {
    return {Code::kStale,
            "wanted a finished stats file, got one that its engine never finished; "
            "start the engine again"};
  }
  identity_.major = static_cast<uint16_t>(version >> 16);
  identity_.minor = static_cast<uint16_t>(version);
  if (identity_.major != kStatsMajor) {
    return {Code::kVersionMismatch,
            "stats layout: wanted major version " + std::to_string(kStatsMajor) + ", got " +
                std::to_string(identity_.major) + "; use the tools of the engine's release"};
  }
  // A private copy, which alone is checked and used.
  const uint64_t total = header.total_bytes.load(std::memory_order_relaxed);
  error_log_offset_ = header.error_log_offset.load(std::memory_order_relaxed);
  error_log_bytes_ = header.error_log_bytes.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kStatsTables; ++i) {
    tables_[i].offset = header.tables[i].offset.load(std::memory_order_relaxed);
    tables_[i].count = header.tables[i].count.load(std::memory_order_relaxed);
    tables_[i].row_bytes = header.tables[i].row_bytes.load(std::memory_order_relaxed);
  }
  if (total > file_bytes) {
    return {Code::kInvalidArgument, "wanted " + std::to_string(total) + " bytes, got " +
                                        std::to_string(file_bytes) +
                                        "; the file is cut short: copy it again"};
  }
  const auto lies_inside = [file_bytes](uint64_t offset, uint64_t bytes) {
    return offset >= sizeof(StatsHeader) && offset % kStatsAlignment == 0 && offset <= file_bytes &&
           bytes <= file_bytes - offset;
  };
  bool good = header.header_bytes.load(std::memory_order_relaxed) >= sizeof(StatsHeader) &&
              lies_inside(error_log_offset_, error_log_bytes_);
  for (uint32_t i = 0; i < kStatsTables; ++i) {
    const Table& table = tables_[i];
    good = good && table.row_bytes >= kRowBytes[i] && table.row_bytes % kStatsAlignment == 0 &&
           lies_inside(table.offset, uint64_t{table.count} * table.row_bytes);
  }
  if (!good) {
    return {Code::kInvalidArgument, "wanted every table inside the file's " +
                                        std::to_string(file_bytes) +
                                        " bytes, got one outside; the file is damaged"};
  }
  identity_.build = header.build.get();
  identity_.engine_name = header.engine_name.get();
  identity_.pid = header.pid.load(std::memory_order_relaxed);
  identity_.incarnation = header.incarnation.load(std::memory_order_relaxed);
  identity_.start_wall_ns = header.start_wall_ns.load(std::memory_order_relaxed);
  identity_.start_monotonic_ns = header.start_monotonic_ns.load(std::memory_order_relaxed);
  return {};
}

uint32_t StatsReader::count(StatsTable table) const {
  return tables_[static_cast<uint32_t>(table)].count;
}

template <typename Row>
const Row& StatsReader::row(StatsTable table, uint32_t index) const {
  const Table& where = tables_[static_cast<uint32_t>(table)];
  return *mapping_.at<const Row>(where.offset + uint64_t{index} * where.row_bytes);
}

StatsState StatsReader::state() const {
  const StatsHeader& header = this->header();
  StatsState state;
  const bool whole = header.state_version.read([&] {
    state.state = static_cast<EngineState>(header.state.load(std::memory_order_acquire));
    state.reason = header.reason.get();
  });
  state.torn = !whole;
  state.beats = header.beats.get();
  state.beat_wall_ns = header.beat_wall_ns.get();
  return state;
}

std::vector<const PollerStats*> StatsReader::pollers() const {
  std::vector<const PollerStats*> result;
  for (uint32_t i = 0; i < count(StatsTable::kPollers); ++i) {
    const auto& poller = row<PollerStats>(StatsTable::kPollers, i);
    const uint32_t state = poller.state.load(std::memory_order_acquire);
    if (state != static_cast<uint32_t>(PollerState::kUnused)) result.push_back(&poller);
  }
  return result;
}

std::vector<ClientRecord> StatsReader::clients() const {
  std::vector<ClientRecord> result;
  constexpr auto kAcquire = std::memory_order_acquire;
  const uint64_t all_channels = count(StatsTable::kChannels);
  for (uint32_t i = 0; i < count(StatsTable::kClients); ++i) {
    const auto& source = row<ClientRow>(StatsTable::kClients, i);
    ClientRecord client;
    bool in_use = false;
    const bool whole = source.version.read([&] {
      client = {};
      in_use = used(source.state);
      if (!in_use) return;
      client.instance = source.instance.get();
      client.session = source.session.get();
      client.incarnation = source.incarnation.get();
      client.rank = source.rank.load(kAcquire);
      client.pid = source.pid.load(kAcquire);
      client.uid = source.uid.load(kAcquire);
      client.flags = source.flags.load(kAcquire);
      client.channels = source.channels.load(kAcquire);
      client.attached_wall_ns = source.attached_wall_ns.get();
      client.regions = source.regions.get();
      client.layouts = source.layouts.get();
      client.registered_bytes = source.registered_bytes.get();
      const uint64_t first = source.first_channel.load(kAcquire);
      const uint64_t end = std::min(all_channels, first + source.channel_capacity.load(kAcquire));
      for (uint64_t c = first; c < end; ++c) {
        const auto& channel = row<ChannelStats>(StatsTable::kChannels, static_cast<uint32_t>(c));
        client.requests += channel.requests.get();
        client.completed += channel.completed.get();
        client.failed += channel.failed.get();
        client.pairs += channel.pairs.get();
        client.bytes += channel.bytes.get();
        client.notifications += channel.notifications.get();
        client.wakes += channel.wakes.get();
        client.violations += channel.violations.get();
        client.deadline_misses += channel.deadline_misses.get();
        client.cancels += channel.cancels.get();
      }
    });
    client.torn = !whole;
    if (in_use) result.push_back(std::move(client));
  }
  return result;
}

std::vector<CounterRecord> StatsReader::counters() const {
  std::vector<CounterRecord> result;
  for (uint32_t i = 0; i < count(StatsTable::kCounters); ++i) {
    const auto& source = row<CounterRow>(StatsTable::kCounters, i);
    CounterRecord counter;
    bool in_use = false;
    source.version.read([&] {
      in_use = used(source.state);
      if (!in_use) return;
      counter = {source.name.get(), source.labels.get(), source.unit.get(), source.value.get()};
    });
    if (in_use) result.push_back(std::move(counter));
  }
  return result;
}

std::vector<TransportRecord> StatsReader::transports() const {
  std::vector<TransportRecord> result;
  for (uint32_t i = 0; i < count(StatsTable::kTransports); ++i) {
    const auto& source = row<TransportRow>(StatsTable::kTransports, i);
    TransportRecord transport;
    bool in_use = false;
    source.version.read([&] {
      in_use = used(source.state);
      if (!in_use) return;
      transport.id = i;
      transport.name = source.name.get();
      transport.level = source.level.load(std::memory_order_acquire);
      transport.available = source.available.load(std::memory_order_acquire) != 0;
      transport.reason = source.reason.get();
      transport.info = source.info.get();
    });
    if (in_use) result.push_back(std::move(transport));
  }
  return result;
}

std::vector<LinkRecord> StatsReader::links(StatsTable table) const {
  std::vector<LinkRecord> result;
  for (uint32_t i = 0; i < count(table); ++i) {
    const auto& source = row<LinkRow>(table, i);
    LinkRecord link;
    bool in_use = false;
    source.version.read([&] {
      in_use = used(source.state);
      if (!in_use) return;
      link = {source.name.get(),     source.state_name.get(), source.incarnation.get(),
              source.bytes_in.get(), source.bytes_out.get(),  source.errors.get()};
    });
    if (in_use) result.push_back(std::move(link));
  }
  return result;
}

std::vector<LinkRecord> StatsReader::peers() const { return links(StatsTable::kPeers); }
std::vector<LinkRecord> StatsReader::devices() const { return links(StatsTable::kDevices); }

std::vector<ErrorRecord> StatsReader::errors() const {
  return read_error_log(mapping_.at<const std::byte>(error_log_offset_), error_log_bytes_);
}

}  // namespace wherry::shm
