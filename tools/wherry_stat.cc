// wherry-stat: shows what an engine counts and says of itself, without asking it.

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>

#include "shm/file_descriptor.h"
#include "shm/run_root.h"
#include "shm/stats_reader.h"
#include "tools/engine_life.h"
#include "tools/stat_report.h"

namespace wherry::tools {
namespace {

constexpr int kExitLive = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNotLive = 3;
constexpr int kExitIncompatible = 4;
constexpr int kExitNotFound = 5;

constexpr const char* kFooter =
    "Without --dir and --file the run directory is the one of the engine's name, by the rule that\n"
    "engine and clients use: $WHERRY_RUN_DIR/<name>, else /run/wherry/<name> (root), else\n"
    "$XDG_RUNTIME_DIR/wherry/<name>, /dev/shm/wherry-<uid>/<name> or /tmp/wherry-<uid>/<name>.\n\n"
    "Exit status: 0 the engine lives; 3 it is dead, stopped or stale, or the file is a copy; 4 "
    "the\n"
    "file is of another release or no stats file; 5 there is none; 2 wrong options; 1 other "
    "failure.\n"
    "With --watch, that of the last look.";

struct Options {
  std::string engine{shm::kDefaultEngineName};
  std::string dir;
  std::string file;
  bool json = false;
  bool errors = false;
  std::optional<double> watch_s;
  uint64_t count = 0;  // looks; 0 = until interrupted
};

uint64_t read_clock(clockid_t id) {
  struct timespec now {};
  clock_gettime(id, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int exit_code(const Status& status) {
  switch (status.code()) {
    case Code::kUnreachable:
      return kExitNotFound;
    case Code::kStale:
      return kExitNotLive;
    case Code::kVersionMismatch:
    case Code::kInvalidArgument:
      return kExitIncompatible;
    default:
      return kExitFailure;
  }
}

std::string stats_path(const Options& options) {
  if (!options.file.empty()) return options.file;
  return (options.dir.empty() ? shm::run_dir(options.engine) : options.dir) + "/stats";
}

// One look. Opens the file anew, since an engine that starts puts a new one in its place.
int look(const Options& options, const std::string& path, std::optional<StatReport>& before) {
  const bool one_line = options.watch_s.has_value();
  const Result<shm::StatsReader> stats = shm::StatsReader::open(path);
  if (!stats.ok()) {
    before.reset();
    if (options.json) {
      std::fputs(json_failure(stats.status(), one_line).c_str(), stdout);
    }
    std::fprintf(stderr, "wherry-stat: %s\n", stats.status().to_string().c_str());
    return exit_code(stats.status());
  }
  const uint64_t wall = read_clock(CLOCK_REALTIME);
  StatReport report =
      take_report(*stats, engine_life(*stats, path, wall), wall, read_clock(CLOCK_MONOTONIC));
  std::string text;
  if (options.json) {
    text = json_report(report, one_line);
  } else if (options.errors) {
    text = text_errors(report);
  } else {
    text = text_report(report, before ? &*before : nullptr);
  }
  std::fputs(text.c_str(), stdout);
  before = std::move(report);
  return before->life.life == Life::kLive ? kExitLive : kExitNotLive;
}

// True when the user has had enough.
bool interrupted_within(int signals, double seconds) {
  struct pollfd waits {
    signals, POLLIN, 0
  };
  return poll(&waits, 1, static_cast<int>(std::ceil(seconds * 1000))) > 0;
}

int watch(const Options& options, const std::string& path) {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  sigaddset(&interrupts, SIGTERM);
  sigprocmask(SIG_BLOCK, &interrupts, nullptr);
  const shm::UniqueFd signals(signalfd(-1, &interrupts, SFD_CLOEXEC));
  const bool clear = !options.json && isatty(STDOUT_FILENO) != 0;
  std::optional<StatReport> before;
  for (uint64_t looks = 1;; ++looks) {
    std::fputs(clear ? "\033[H\033[2J" : (looks > 1 && !options.json ? "\n" : ""), stdout);
    const int code = look(options, path, before);
    // A reader that has gone (| head) ends the watch.
    if (std::fflush(stdout) != 0) return kExitFailure;
    if (looks == options.count || interrupted_within(signals.get(), *options.watch_s)) return code;
  }
}

int run(int argc, char** argv) {
  CLI::App app("Shows what a Wherry engine counts and says of itself; asks nothing of the engine.",
               "wherry-stat");
  app.footer(kFooter);
  app.set_version_flag("--version", "wherry-stat " WHERRY_VERSION);
  Options options;
  double interval = 1;
  auto* engine = app.add_option("-e,--engine", options.engine, "name of the engine");
  engine->capture_default_str();
  auto* dir = app.add_option("-d,--dir", options.dir, "run directory of the engine");
  auto* file = app.add_option("-f,--file", options.file, "a stats file, also a copied one");
  dir->excludes(engine);
  file->excludes(engine)->excludes(dir);
  app.add_flag("-j,--json", options.json, "print JSON (with --watch one object a line)");
  app.add_flag("--errors", options.errors, "print only the error log, with times");
  auto* watch_option =
      app.add_option("-w,--watch", interval, "look again every SECONDS, and show rates")
          ->type_name("[SECONDS]")
          ->expected(0, 1)
          ->check(CLI::Range(0.001, 86400.0));
  app.add_option("-n,--count", options.count, "with --watch: end after so many looks")
      ->needs(watch_option);
  try {
    app.parse(argc, argv);
    if (!shm::valid_engine_name(options.engine)) {
      throw CLI::ValidationError(
          "--engine", "wanted 1 to 64 of A-Z a-z 0-9 . _ -, got '" + options.engine + "'");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const std::string path = stats_path(options);
  if (watch_option->count() > 0) {
    options.watch_s = interval;
    return watch(options, path);
  }
  std::optional<StatReport> none;
  return look(options, path, none);
}

}  // namespace
}  // namespace wherry::tools

int main(int argc, char** argv) { return wherry::tools::run(argc, argv); }
