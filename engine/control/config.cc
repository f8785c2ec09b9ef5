#include "engine/control/config.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/control/affinity.h"
#include "engine/control/config_reader.h"
#include "engine/control/group.h"
#include "engine/tables.h"
#include "shm/cgroup.h"
#include "shm/file_descriptor.h"
#include "shm/layout.h"
#include "shm/protocol.h"
#include "shm/run_root.h"

namespace wherry::engine {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxRunDirBytes = 107 - sizeof("/engine.sock") + 1;  // of a socket's address
constexpr uint32_t kMaxMilliseconds = 24 * 3600 * 1000;
constexpr uint32_t kMinNotificationSlots = 64;  // the longest notification must fit
constexpr std::string_view kLogLevels[] = {"debug", "info", "warning", "error"};

constexpr char kNameWanted[] = "1 to 64 of A-Z a-z 0-9 . _ - (and not . or ..)";

// Absolute, or empty where that means "by default"; no NUL, which would end it early.
bool good_path(const std::string& path, size_t max_bytes) {
  return path.empty() ||
         (path[0] == '/' && path.size() <= max_bytes && path.find('\0') == std::string::npos);
}

bool good_group(const std::string& name) { return name.empty() || group_id(name).ok(); }

// "0660": three octal digits, with or without a leading 0, that leave the owner reading and
// writing.
std::optional<uint32_t> file_mode(std::string_view text) {
  if (text.size() == 4 && text[0] == '0') text.remove_prefix(1);
  uint32_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.size() == 3 && (mode & 0600) == 0600 ? std::optional<uint32_t>(mode)
                                                            : std::nullopt;
}

void read_socket(ObjectReader& in, SocketConfig* socket) {
  std::string mode;
  in.text(
      "mode", [](const std::string& text) { return file_mode(text).has_value(); },
      "an octal file mode that lets the owner read and write, such as \"0660\"",
      "leave it out for \"0600\"", &mode);
  in.text("group", good_group, "a group of this host", "create it, name another or leave it out",
          &socket->group);
  if (!mode.empty()) {
    socket->mode = *file_mode(mode);
    if (!socket->group.empty() && (socket->mode & 0060) != 0060) {
      in.problems()->add(in.pointer("mode"),
                         "one that lets the group \"" + socket->group + "\" read and write",
                         "\"" + mode + "\"", "set \"0660\" or leave it out");
    }
  } else if (!socket->group.empty()) {
    socket->mode = 0660;
  }
}

void read_cpu(ObjectReader& in, PollerConfig* poller) {
  constexpr std::string_view kOffset = "offset:";
  const Json* value = in.member("cpu");
  if (value == nullptr || value->is_null()) return;
  if (value->is_number_unsigned() && value->get<uint64_t>() < CPU_SETSIZE) {
    poller->pin = Pin::kCpu;
    poller->cpu = value->get<uint32_t>();
    return;
  }
  if (value->is_string()) {
    std::string_view text = value->get_ref<const std::string&>();
    if (text.substr(0, kOffset.size()) == kOffset) {
      text.remove_prefix(kOffset.size());
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), poller->cpu);
      if (error == std::errc() && end == text.data() + text.size() && poller->cpu < CPU_SETSIZE) {
        poller->pin = Pin::kOffset;
        return;
      }
    }
  }
  in.problems()->add(in.pointer("cpu"),
                     "a core below " + std::to_string(CPU_SETSIZE) + " or \"offset:<n>\"",
                     shown(*value), "leave it out to let the poller run anywhere");
}

void read_idle(ObjectReader& in, const ConfigOptions& options, PollerConfig* poller) {
  std::string name;
  in.text(
      "idle",
      [&](const std::string& text) {
        const std::optional<IdleStrategy> idle = idle_strategy_from_name(text);
        return idle && (*idle != IdleStrategy::kExternal || options.allow_external);
      },
      options.allow_external ? "busy, adaptive, sleep or external" : "busy, adaptive or sleep",
      "leave it out for adaptive", &name);
  if (!name.empty()) poller->idle = *idle_strategy_from_name(name);
}

void read_pollers(ObjectReader& in, const ConfigOptions& options,
                  std::vector<PollerConfig>* pollers) {
  const Json* value = in.member("pollers");
  if (value == nullptr) return;
  if (!value->is_array() || value->empty() || value->size() > kMaxPollers) {
    in.problems()->add(
        in.pointer("pollers"), "a list of 1 to " + std::to_string(kMaxPollers) + " pollers",
        value->is_array() ? std::to_string(value->size()) + " of them" : shown(*value),
        "leave it out for one adaptive poller that is not pinned");
    return;
  }
  pollers->clear();
  for (size_t i = 0; i < value->size(); ++i) {
    PollerConfig& poller = pollers->emplace_back();
    ObjectReader reader((*value)[i], in.pointer("pollers") + "/" + std::to_string(i),
                        in.problems());
    read_cpu(reader, &poller);
    read_idle(reader, options, &poller);
    reader.integer("spin_us", 0u, 1'000'000u, &poller.spin_us);
    reader.finish();
  }
}

void read_client_limits(ObjectReader& in, ClientLimits* limits) {
  constexpr uint32_t kMaxHandles = 1 << 20;
  in.integer("channels_per_client", 1u, shm::protocol::kMaxChannelsPerClient,
             &limits->channels_per_client);
  in.integer("regions_per_client", 1u, kMaxHandles, &limits->regions_per_client);
  in.integer("layouts_per_client", 1u, kMaxHandles, &limits->layouts_per_client);
  in.integer("layout_parts_per_client", 1u, 1u << 28, &limits->layout_parts_per_client);
  in.integer("found_per_client", 1u, kMaxHandles, &limits->found_per_client);
  in.integer("registered_bytes_per_client", uint64_t{0}, uint64_t{1} << 60,
             &limits->registered_bytes_per_client);
  in.power_of_two("submission_slots", shm::kMinRingSlots, shm::kMaxRingSlots,
                  &limits->submission_slots);
}

void read_limits(ObjectReader& in, Config* config) {
  in.object("limits", [&](ObjectReader& limits) {
    limits.integer("clients", 1u, 4096u, &config->limits.clients);
    read_client_limits(limits, &config->limits);
  });
  const Json* value = in.member("client_limits");
  if (value == nullptr) return;
  if (!value->is_object()) {
    in.problems()->add(in.pointer("client_limits"), "an object of instances", shown(*value),
                       "write {...}");
    return;
  }
  ObjectReader instances(*value, in.pointer("client_limits"), in.problems());
  for (const auto& [instance, ignored] : value->items()) {
    ClientLimits limits = config->limits;
    instances.object(instance, [&](ObjectReader& reader) { read_client_limits(reader, &limits); });
    if (shm::valid_engine_name(instance)) {
      config->client_limits[instance] = limits;
    } else {
      in.problems()->add(instances.pointer(instance), std::string("an instance: ") + kNameWanted,
                         shown(Json(instance)), "rename it");
    }
  }
}

void read_channels(ObjectReader& in, Config* config) {
  ChannelsConfig& channels = config->channels;
  in.object("channels", [&](ObjectReader& reader) {
    reader.power_of_two("submission_slots", shm::kMinRingSlots, shm::kMaxRingSlots,
                        &channels.submission_slots);
    reader.power_of_two("notification_slots", kMinNotificationSlots, shm::kMaxRingSlots,
                        &channels.notification_slots);
  });
  const auto check = [&](const std::string& pointer, const ClientLimits& limits) {
    if (channels.submission_slots <= limits.submission_slots) return;
    in.problems()->add(
        pointer, "at least channels.submission_slots, " + std::to_string(channels.submission_slots),
        std::to_string(limits.submission_slots), "raise it, or lower /channels/submission_slots");
  };
  check("/limits/submission_slots", config->limits);
  for (const auto& [instance, limits] : config->client_limits) {
    if (limits.submission_slots == config->limits.submission_slots) continue;
    check("/client_limits/" + instance + "/submission_slots", limits);
  }
}

void read_transports(ObjectReader& in, const ConfigOptions& options, TransportsConfig* transports) {
  in.object("transports", [&](ObjectReader& reader) {
    reader.object("memory", [&](ObjectReader& memory) {
      memory.boolean("enabled", &transports->memory.enabled);
      memory.integer("piece_bytes", uint64_t{4096}, uint64_t{16} << 20,
                     &transports->memory.piece_bytes);
      memory.integer("streaming_from_bytes", uint64_t{0}, uint64_t{1} << 40,
                     &transports->memory.streaming_from_bytes);
      memory.integer("copy_threads", 0u, 64u, &transports->memory.copy_threads);
    });
    reader.object("null", [&](ObjectReader& null) {
      null.boolean("enabled", &transports->null.enabled);
      if (transports->null.enabled && !options.allow_null) {
        null.problems()->add(null.pointer("enabled"),
                             "false: this transport moves nothing and answers OK", "true",
                             "disable it, or start wherryd with --allow-null for a benchmark");
      }
    });
    if (!transports->memory.enabled && !transports->null.enabled) {
      reader.problems()->add("/transports", "at least one that is enabled", "none",
                             "enable /transports/memory");
    }
  });
}

void read_log(ObjectReader& in, LogConfig* log) {
  in.object("log", [&](ObjectReader& reader) {
    reader.text(
        "level",
        [](const std::string& level) {
          return std::find(std::begin(kLogLevels), std::end(kLogLevels), level) !=
                 std::end(kLogLevels);
        },
        "debug, info, warning or error", "leave it out for info", &log->level);
    reader.text(
        "file", [](const std::string& path) { return good_path(path, 4095); }, "an absolute path",
        "leave it out for standard error", &log->file);
  });
}

Config read_config(ObjectReader& in, const ConfigOptions& options) {
  Config config;
  std::string for_editors;
  in.text(
      "$schema", [](const std::string&) { return true; }, "a text", "remove it", &for_editors);
  in.text("name", shm::valid_engine_name, kNameWanted, "leave it out for \"default\"",
          &config.name);
  in.text(
      "run_dir", [](const std::string& path) { return good_path(path, kMaxRunDirBytes); },
      "an absolute path of at most " + std::to_string(kMaxRunDirBytes) + " bytes",
      "leave it out for the usual place", &config.run_dir);
  in.object("socket", [&](ObjectReader& reader) { read_socket(reader, &config.socket); });
  in.text("admin_group", good_group, "a group of this host",
          "create it, name another or leave it out", &config.admin_group);
  in.integer("default_deadline_ms", 1u, kMaxMilliseconds, &config.default_deadline_ms);
  in.integer("drain_timeout_ms", 0u, kMaxMilliseconds, &config.drain_timeout_ms);
  read_pollers(in, options, &config.pollers);
  in.boolean("allow_oversubscription", &config.allow_oversubscription);
  in.integer("registrars", 1u, 16u, &config.registrars);
  read_limits(in, &config);
  read_channels(in, &config);
  read_transports(in, options, &config.transports);
  read_log(in, &config.log);
  in.finish();
  return config;
}

}  // namespace

uint32_t default_spin_us() {
  constexpr uint32_t kMetal = 50;
  constexpr uint32_t kHypervisor = 200;
  static const uint32_t kSpinUs = [] {
    const std::optional<std::string> cpuinfo = shm::read_small_file("/proc/cpuinfo");
    return cpuinfo && cpuinfo->find(" hypervisor") != std::string::npos ? kHypervisor : kMetal;
  }();
  return kSpinUs;
}

Result<Config> parse_config(std::string_view text, const std::string& origin,
                            const ConfigOptions& options) {
  Problems problems;
  Json document;
  Config config;
  if (parse_document(text, &document, &problems)) {
    ObjectReader reader(document, "", &problems);
    config = read_config(reader, options);
    if (options.cores != nullptr) {
      for (std::string& line : core_problems(config, *options.cores))
        problems.add_line(std::move(line));
    }
  }
  const std::vector<std::string>& lines = problems.lines();
  if (lines.empty()) return config;
  std::string message = "config " + origin + ": " + std::to_string(lines.size()) +
                        (lines.size() == 1 ? " problem" : " problems");
  for (const std::string& line : lines) message += "\n" + line;
  return Status(Code::kInvalidArgument, message);
}

Result<Config> load_config(const std::string& path, const ConfigOptions& options) {
  // Not blocking: the path may name a pipe that nobody writes to.
  const shm::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return errno_status(Code::kInvalidArgument, "config " + path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > static_cast<off_t>(kMaxConfigBytes)) {
    return Status(Code::kInvalidArgument, "config " + path + ": wanted a regular file of at most " +
                                              std::to_string(kMaxConfigBytes) +
                                              " bytes, got something else; name the JSON file");
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), 0);
  if (got < 0) return errno_status(Code::kInvalidArgument, "config " + path, errno);
  text.resize(static_cast<size_t>(got));
  return parse_config(text, path, options);
}

}  // namespace wherry::engine
