// wherryd: the engine as a program. Reads the config, starts the engine, turns signals into its
// end.

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/control/affinity.h"
#include "engine/control/config.h"
#include "engine/doctor.h"
#include "engine/engine.h"
#include "shm/run_root.h"

namespace wherry::engine {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitCannotStart = 1;
constexpr int kExitUsage = 2;
constexpr int kExitTaken = 3;
constexpr int kExitFailed = 4;

constexpr const char* kFooter =
    R"(Without --config every key has its default. The run directory is --run-dir, else run_dir of
the config, else that of the name: $WHERRY_RUN_DIR/<name>, /run/wherry/<name> (root),
$XDG_RUNTIME_DIR/wherry/<name>, /dev/shm/wherry-<uid>/<name> or /tmp/wherry-<uid>/<name>.

Signals: SIGTERM and SIGINT drain (no new requests, finish those that are there, for at most
drain_timeout_ms); a second one stops (fail what is queued, finish what is being moved).

Exit status: 0 ended as asked, or the check found nothing; 1 could not start, or the check found
problems; 2 wrong options; 3 another engine has the run directory; 4 failed while running; 5 ended
by wherryctl kill.)";

struct Options {
  std::string config;
  std::string name;
  std::string run_dir;
  bool check_config = false;
  bool print_config = false;
  bool doctor = false;
  bool allow_null = false;
};

int complain(const Status& status, int exit_code) {
  std::fprintf(stderr, "wherryd: %s\n", status.message().c_str());
  return exit_code;
}

// The config that holds: the file, on this host, and the options that override it.
Result<Config> make_config(const Options& options) {
  const Result<CoreSet> cores = usable_cores();
  if (!cores.ok()) return cores.status();
  ConfigOptions allowed;
  allowed.allow_null = options.allow_null;
  allowed.cores = &*cores;
  Result<Config> config = options.config.empty() ? parse_config("{}", "defaults", allowed)
                                                 : load_config(options.config, allowed);
  if (!config.ok()) return config;
  if (!options.name.empty()) config->name = options.name;
  if (!options.run_dir.empty())
    config->run_dir = std::filesystem::absolute(options.run_dir).lexically_normal();
  if (config->run_dir.empty()) config->run_dir = shm::run_dir(config->name);
  return config;
}

Status start_log(const LogConfig& log) {
  try {
    const auto logger = log.file.empty() ? spdlog::stderr_color_mt("wherryd")
                                         : spdlog::basic_logger_mt("wherryd", log.file);
    logger->set_level(spdlog::level::from_str(log.level));
    logger->flush_on(spdlog::level::info);
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
    spdlog::set_default_logger(logger);
  } catch (const spdlog::spdlog_ex& error) {
    return {Code::kInvalidArgument, std::string("/log/file: wanted a file to write to, got ") +
                                        error.what() + "; choose another"};
  }
  return {};
}

// The usual limit is low for the sake of select(), which nothing here uses.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run_engine(const Config& config, bool allow_null) {
  if (Status status = start_log(config.log); !status.ok())
    return complain(status, kExitCannotStart);
  raise_descriptor_limit();
  EngineOptions options;
  options.allow_null = allow_null;
  options.handle_signals = true;
  const Result<std::unique_ptr<Engine>> engine = Engine::start(config, options);
  if (!engine.ok()) {
    return complain(engine.status(),
                    engine.code() == Code::kAlreadyExists ? kExitTaken : kExitCannotStart);
  }
  const Status end = (*engine)->run();
  return end.ok() ? kExitDone : complain(end, kExitFailed);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Wherry's engine: moves KV-cache blocks for the inference processes of this host.",
               "wherryd");
  app.set_version_flag("--version", "wherryd " WHERRY_VERSION);
  app.footer(kFooter);
  app.add_option("--config", options.config, "The config file (JSON; see configs/)");
  app.add_option("--name", options.name, "The engine's name, instead of the config's")
      ->check([](const std::string& name) {
        return shm::valid_engine_name(name) ? "" : "wanted 1 to 64 of A-Z a-z 0-9 . _ -";
      });
  app.add_option("--run-dir", options.run_dir, "The run directory, instead of the config's");
  app.add_flag("--allow-null", options.allow_null,
               "Allow the transport null, which moves nothing (benchmarks)");
  constexpr const char* kInstead = "Instead of running";
  auto* check = app.add_flag("--check-config", options.check_config,
                             "Name every problem of the config on this host");
  auto* print = app.add_flag("--print-config", options.print_config, "Print the values that hold");
  auto* doctor =
      app.add_flag("--doctor", options.doctor, "Say whether this host is ready for the engine");
  check->group(kInstead)->excludes(print)->excludes(doctor);
  print->group(kInstead)->excludes(doctor);
  doctor->group(kInstead);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }

  const Result<Config> config = make_config(options);
  if (!config.ok()) return complain(config.status(), kExitCannotStart);
  if (options.check_config) {
    std::printf("%s: no problems\n", options.config.empty() ? "defaults" : options.config.c_str());
    return kExitDone;
  }
  if (options.print_config) {
    std::printf("%s\n", effective_config_json(*config).c_str());
    return kExitDone;
  }
  if (options.doctor) {
    const std::vector<Finding> findings = examine_host(*config);
    std::printf("%s%s\n", findings_text(findings).c_str(),
                is_ready(findings) ? "ready" : "NOT ready");
    return is_ready(findings) ? kExitDone : kExitCannotStart;
  }
  return run_engine(*config, options.allow_null);
}

}  // namespace
}  // namespace wherry::engine

int main(int argc, char** argv) { return wherry::engine::run(argc, argv); }
