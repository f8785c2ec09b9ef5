// wherryctl: asks a running engine for its state, or to end; checks a config or this host.

#include <limits.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shm/run_root.h"
#include "shm/stats_reader.h"
#include "shm/text.h"
#include "tools/ctl_link.h"
#include "tools/ctl_text.h"

namespace wherry::tools {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr int kExitDone = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoEngine = 3;

constexpr const char* kFooter =
    R"(Without --dir the run directory is the one of the engine's name, by the rule that engine and
clients use: $WHERRY_RUN_DIR/<name>, else /run/wherry/<name> (root), else
$XDG_RUNTIME_DIR/wherry/<name>, /dev/shm/wherry-<uid>/<name> or /tmp/wherry-<uid>/<name>.
The engine answers its own user, root, and members of its admin_group.

Exit status: 0 done; 1 refused, failed, or not in time; 2 wrong options; 3 no engine runs there.
'config check' and 'doctor' end as wherryd does: 0 all is well, 1 problems are named.)";

struct Options {
  std::string engine{shm::kDefaultEngineName};
  std::string dir;
  std::string reason;
  std::string file;
  double timeout_s = 10;
  bool wait = false;
  std::optional<double> within_s;
  bool json = false;
  bool allow_null = false;
};

milliseconds to_milliseconds(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1000));
}

int fail(const Options& options, const Status& status) {
  const std::string message = shm::printable(status.message());
  if (options.json) {
    const Json object = {{"ok", false}, {"code", code_name(status.code())}, {"message", message}};
    std::fputs(reply_json(object).c_str(), stdout);
  }
  std::fprintf(stderr, "wherryctl: %s: %s\n", std::string(code_name(status.code())).c_str(),
               message.c_str());
  return status.code() == Code::kUnreachable ? kExitNoEngine : kExitFailure;
}

// Shows how the engine ended, which its stats file says. Whether it did so by itself.
bool show_end(const Options& options, const std::string& run_dir) {
  const Result<shm::StatsReader> stats = shm::StatsReader::open(run_dir + "/stats");
  const shm::StatsState end = stats.ok() ? stats->state() : shm::StatsState();
  const bool clean = end.state == shm::EngineState::kStopped;
  const std::string state = stats.ok() ? std::string(shm::engine_state_name(end.state)) : "unknown";
  if (options.json) {
    std::fputs(reply_json({{"ok", true}, {"gone", true}, {"state", state}, {"reason", end.reason}})
                   .c_str(),
               stdout);
  } else {
    std::printf("the engine is gone, its last state: %s%s\n", state.c_str(),
                end.reason.empty() ? "" : (" (" + shm::printable(end.reason) + ")").c_str());
  }
  return clean;
}

void show(const Options& options, const std::string& command, const Json& reply) {
  std::string text;
  if (options.json) {
    text = reply_json(reply);
  } else if (command == "status") {
    text = status_text(reply);
  } else if (command == "clients") {
    text = clients_text(reply);
  } else if (command == "transports") {
    text = transports_text(reply);
  } else {
    text = command == "drain" ? "the engine drains\n" : "the engine ends\n";
  }
  std::fputs(text.c_str(), stdout);
}

int ask_engine(const Options& options, const std::string& command) {
  if (options.dir.empty() && !shm::valid_engine_name(options.engine)) {
    std::fprintf(stderr,
                 "wherryctl: --engine: wanted 1 to 64 of A-Z a-z 0-9 . _ -, got another name\n");
    return kExitUsage;
  }
  const std::string run_dir = options.dir.empty() ? shm::run_dir(options.engine) : options.dir;
  Result<AdminLink> link = AdminLink::connect(run_dir);
  if (!link.ok()) return fail(options, link.status());
  const Result<std::string> answer =
      link->ask(command, options.reason, to_milliseconds(options.timeout_s));
  const bool killed =
      command == "kill" && answer.code() == Code::kUnreachable;  // that is its answer
  if (!answer.ok() && !killed) return fail(options, answer.status());

  const Json reply = killed ? Json::object({{"ok", true}}) : Json::parse(*answer, nullptr, false);
  if (reply.value("ok", Json()) != true) {
    const Json code = reply.value("code", Json());
    const Json message = reply.value("message", Json());
    return fail(
        options,
        {code_from_name(code.is_string() ? code.get<std::string>() : "").value_or(Code::kInternal),
         message.is_string() ? message.get<std::string>() : "the engine gave no reason"});
  }
  if (!options.wait) {
    show(options, command, reply);
    return kExitDone;
  }
  std::optional<milliseconds> limit;
  if (options.within_s) limit = to_milliseconds(*options.within_s);
  if (Status status = link->wait_until_gone(limit); !status.ok()) return fail(options, status);
  const bool clean = show_end(options, run_dir);
  return clean || command == "kill" ? kExitDone : kExitFailure;
}

// Becomes wherryd: the one beside this program, else the one in the path.
int run_wherryd(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"wherryd"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char self[PATH_MAX];
  const ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self));
  if (bytes > 0) {
    const std::string path(self, static_cast<size_t>(bytes));
    execv((path.substr(0, path.rfind('/')) + "/wherryd").c_str(), argv.data());
  }
  execvp("wherryd", argv.data());
  std::fprintf(
      stderr, "wherryctl: wherryd: wanted it beside wherryctl or in the PATH, got %s; install it\n",
      std::strerror(errno));
  return kExitFailure;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Administers a Wherry engine.", "wherryctl");
  app.set_version_flag("--version", "wherryctl " WHERRY_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  auto* dir = app.add_option("--dir", options.dir, "The engine's run directory");
  app.add_option("--engine", options.engine, "The engine's name")
      ->capture_default_str()
      ->excludes(dir);
  app.add_option("--timeout", options.timeout_s, "Seconds to wait for the engine's answer")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app.add_flag("--json", options.json, "Print JSON");

  const auto add = [&](const char* name, const char* about) {
    return app.add_subcommand(name, about);
  };
  add("status", "Shows state, pollers and number of clients");
  add("clients", "Lists the attached clients and what they use");
  add("transports", "Lists the ways to move bytes, and why one is not available");
  CLI::App* ends[] = {
      add("drain", "Ends the engine: no new requests, finish those that are there"),
      add("stop", "Ends the engine: fail what is queued, finish what is being moved"),
      add("kill", "Ends the engine at once: clients find out as after a crash")};
  for (CLI::App* end : ends) {
    end->add_option("--reason", options.reason, "Goes to the log, the stats and the clients");
    CLI::Option* wait = end->add_flag("--wait", options.wait, "Return when the process is gone");
    end->add_option("--within", options.within_s, "With --wait: fail after so many seconds")
        ->needs(wait)
        ->option_text("SECONDS")
        ->check(CLI::Range(0.0, 86400.0 * 365));
  }
  CLI::App* config = add("config", "Looks at config files");
  config->require_subcommand(1);
  CLI::App* check = config->add_subcommand(
      "check", "Names every problem of a config file (wherryd --check-config)");
  check->add_option("file", options.file, "The config file")->required();
  check->add_flag("--allow-null", options.allow_null,
                  "Allow the transport null, as wherryd does with this flag");
  CLI::App* doctor =
      add("doctor", "Says whether this host is ready for an engine (wherryd --doctor)");
  doctor->add_option("--config", options.file, "The config the engine would run with");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  const CLI::App* command = app.get_subcommands().front();
  if (command == config) {
    std::vector<std::string> arguments = {"--check-config", "--config", options.file};
    if (options.allow_null) arguments.emplace_back("--allow-null");
    return run_wherryd(arguments);
  }
  if (command == doctor) {
    std::vector<std::string> arguments = {"--doctor"};
    if (!options.file.empty()) arguments.insert(arguments.end(), {"--config", options.file});
    if (app.count("--engine") > 0) arguments.insert(arguments.end(), {"--name", options.engine});
    if (!options.dir.empty()) arguments.insert(arguments.end(), {"--run-dir", options.dir});
    return run_wherryd(arguments);
  }
  return ask_engine(options, command->get_name());
}

}  // namespace
}  // namespace wherry::tools

int main(int argc, char** argv) { return wherry::tools::run(argc, argv); }
