// wherryd: the engine as a program. Reads the config, starts the engine, turns signals into its
// end.

#include <pthread.h>
#include <signal.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

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
    "Without --config every key has its default. The run directory is --run-dir, else the "
    "config's\n"
    "run_dir, else that of the name: $WHERRY_RUN_DIR/<name>, /run/wherry/<name> (root),\n"
    "$XDG_RUNTIME_DIR/wherry/<name>, /dev/shm/wherry-<uid>/<name> or /tmp/wherry-<uid>/<name>.\n\n"
    "Signals: SIGTERM and SIGINT drain (no new requests, finish those that are there, for at most\n"
    "drain_timeout_ms); a second one stops (fail what is queued, finish what is being moved).\n\n"
    "Exit status: 0 ended as asked, or the check found nothing; 1 could not start, or the check "
    "found\n"
    "problems; 2 wrong options; 3 another engine has the run directory; 4 failed while running.";

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

// SIGTERM and SIGINT, which every thread has blocked, as requests to the engine.
class Signals {
 public:
  // Before any thread is started: they inherit what is blocked.
  static void prepare() {
    signal(SIGPIPE, SIG_IGN);  // a client that went away
    signal(SIGXFSZ, SIG_IGN);  // a limit on file size must be an error of the call
    const sigset_t set = handled();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }

  Signals(Engine* engine, std::chrono::milliseconds drain_timeout)
      : thread_([this, engine, drain_timeout] { run(engine, drain_timeout); }) {}
  ~Signals() {
    ended_.store(true);
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  static sigset_t handled() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
  }

  void run(Engine* engine, std::chrono::milliseconds drain_timeout) {
    pthread_setname_np(pthread_self(), "wherry-signals");
    const sigset_t set = handled();
    bool draining = false;
    while (true) {
      int number = 0;
      if (sigwait(&set, &number) != 0) continue;
      if (ended_.load()) return;
      const std::string name = number == SIGTERM ? "SIGTERM" : "SIGINT";
      if (draining) {
        engine->request_stop("second " + name);
      } else {
        engine->request_drain(drain_timeout, name);
      }
      draining = true;
    }
  }

  std::atomic<bool> ended_{false};
  std::thread thread_;
};

int run_engine(const Config& config) {
  if (Status status = start_log(config.log); !status.ok())
    return complain(status, kExitCannotStart);
  Signals::prepare();
  const Result<std::unique_ptr<Engine>> engine = Engine::start(config, {});
  if (!engine.ok()) {
    return complain(engine.status(),
                    engine.code() == Code::kAlreadyExists ? kExitTaken : kExitCannotStart);
  }
  Status end;
  {
    const Signals signals(engine->get(), std::chrono::milliseconds(config.drain_timeout_ms));
    end = (*engine)->run();
  }
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
  auto* what = app.add_option_group("Instead of running");
  what->add_flag("--check-config", options.check_config,
                 "Name every problem of the config on this host");
  what->add_flag("--print-config", options.print_config, "Print the values that hold");
  what->add_flag("--doctor", options.doctor, "Say whether this host is ready for the engine");
  what->require_option(0, 1);
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
  return run_engine(*config);
}

}  // namespace
}  // namespace wherry::engine

int main(int argc, char** argv) { return wherry::engine::run(argc, argv); }
