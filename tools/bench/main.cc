// wherry-bench: measures Wherry on this machine, each figure beside its floor.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "engine/control/affinity.h"
#include "tools/bench/attach.h"
#include "tools/bench/copy.h"
#include "tools/bench/fair.h"
#include "tools/bench/interrupt.h"
#include "tools/bench/local.h"
#include "tools/bench/own_directory.h"
#include "tools/bench/rate.h"
#include "tools/bench/ring.h"

namespace wherry::bench {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 3;

constexpr const char* kFooter =
    "Benchmarks (none named: all):\n"
    "  ring  submit to completion of a request that moves nothing, p50 and p99, beside a bare\n"
    "        ping-pong of two cache lines each way between the same two cores; again with 64 idle\n"
    "        clients attached, and with engine and client on one core.\n"
    "        Case: rtt/<cores>/<percentile>\n"
    "  rate  requests and block pairs a second that one poller takes when nothing moves, beside a\n"
    "        bare ring that carries the same records. Case: <what>/<pairs in a request>\n"
    "  copy  GB/s of transfers in requests of 32 scattered blocks, beside the best of memcpy, rep\n"
    "        movsb and streaming stores over the same memory on the poller's core. cold walks the\n"
    "        pools, warm names the same blocks always. The last figure has a copy thread more,\n"
    "        on the core of a client that sleeps, beside the same without.\n"
    "        Case: <mode>/<source>-<destination layout>/<bytes in one piece>/<requests in flight>\n"
    "  local submit to completion of small warm transfers, beside copying the same blocks on the\n"
    "        poller's core. Case: warm/<block bytes>/<blocks in a request>/<percentile>\n"
    "  fair  bytes of many clients beside those of one, and how evenly they are shared (Jain's\n"
    "        index, 1 = evenly); small requests beside another client's flood, beside the same\n"
    "        alone. Case: total/<clients>, jain/<clients>, beside_flood/<bytes>/<percentile>\n"
    "\n"
    "It starts an engine of its own, in a run directory of its own, and ends both. With two cores\n"
    "or more the engine's poller and the client have one each and spin; with one they share it.\n"
    "Each figure is the median of several rounds; floor and figure take turns in every round. A\n"
    "round waits until others leave the cores alone, and is repeated when they do not; when\n"
    "patience ends disturbed rounds count too, and are marked: * in the table, \"disturbed\" in\n"
    "JSON (how many of the n). spread is (largest - smallest) / median. reach is value / floor "
    "for\n"
    "rates and floor / value for times: 1 is all that the machine can do. Nothing is judged.\n"
    "\n"
    "Memory: twice --pool. The run directory lies in $WHERRY_RUN_DIR if that is set, else in\n"
    "/dev/shm or $TMPDIR.\n"
    "\n"
    "Exit status: 0 all was measured; 1 something failed, standard error says what; 2 wrong\n"
    "options; 3 interrupted. Figures printed before a failure hold.";

// The two cores asked for, else the first two of those this process may use.
Result<Cores> choose_cores(const std::vector<int>& wanted) {
  if (wanted.size() == 2) return Cores{wanted[0], wanted[1]};
  const Result<engine::CoreSet> usable = engine::usable_cores();
  if (!usable.ok()) return usable.status();
  if (usable->allowed.size() < 2 || usable->usable() < 2) return Cores{};
  return Cores{usable->allowed[0], usable->allowed[1]};
}

struct Benchmark {
  const char* name;
  Status (*run)(Setting& setting);
};
constexpr Benchmark kBenchmarks[] = {
    {"ring", run_ring},   {"rate", run_rate}, {"copy", run_copy},
    {"local", run_local}, {"fair", run_fair},
};

Status run_with_client(const Options& options, const Cores& cores, EngineChild& engine,
                       EngineChild* shared_core, EngineChild* helped,
                       const std::vector<std::string>& names) {
  Result<Client> client = attach(engine, "wherry-bench");
  if (!client.ok()) return client.status();
  GateOptions gate_options;
  gate_options.rounds = options.rounds;
  gate_options.tries = options.rounds + (options.rounds + 1) / 2;
  if (options.quick) gate_options.patience_ns = 0;
  std::vector<pid_t> own = {engine.pid()};
  for (const EngineChild* child : {shared_core, helped}) {
    if (child != nullptr) own.push_back(child->pid());
  }
  Gate gate(gate_options, own);
  Report report(options.json);
  Setting setting{options, cores, engine, shared_core, helped, *client, gate, report};
  for (const Benchmark& benchmark : kBenchmarks) {
    if (std::find(names.begin(), names.end(), benchmark.name) == names.end()) continue;
    if (Status s = benchmark.run(setting); !s.ok()) return s;
  }
  report.finish();
  return {};
}

Status run_benchmarks(const Options& options, const std::vector<int>& wanted_cores,
                      const std::vector<std::string>& names) {
  const Result<Cores> cores = choose_cores(wanted_cores);
  if (!cores.ok()) return cores.status();
  const Result<OwnDirectory> directory = OwnDirectory::make();
  if (!directory.ok()) return directory.status();
  EngineChildOptions child;
  child.root = directory->path();
  child.core = cores->engine;
  child.idle = cores->two() ? engine::IdleStrategy::kBusy : engine::IdleStrategy::kAdaptive;
  Result<EngineChild> engine = EngineChild::start(child);
  if (!engine.ok()) return engine.status();
  // Two more, which sleep until it is their turn.
  child.idle = engine::IdleStrategy::kAdaptive;
  std::deque<EngineChild> others;
  if (cores->two()) {
    child.name = "shared";
    child.core = cores->client;
    Result<EngineChild> shared = EngineChild::start(child);
    if (!shared.ok()) return shared.status();
    others.push_back(std::move(*shared));
    child.name = "helped";
    child.core = cores->engine;
    child.copy_threads = 1;
    Result<EngineChild> helped = EngineChild::start(child);
    if (!helped.ok()) return helped.status();
    others.push_back(std::move(*helped));
  }
  // Before the library starts a thread: none of ours shall run on the poller's core.
  if (Status s = engine::pin_this_thread(cores->client); !s.ok()) return s;
  Status status = run_with_client(options, *cores, *engine, others.empty() ? nullptr : &others[0],
                                  others.empty() ? nullptr : &others[1], names);
  Status end = engine->stop();
  return status.ok() ? end : status;
}

int run(int argc, char** argv) {
  CLI::App app("Measures Wherry on this machine, each figure beside its floor.", "wherry-bench");
  app.footer(kFooter);
  app.set_version_flag("--version", "wherry-bench " WHERRY_VERSION);
  Options options;
  std::vector<std::string> names;
  std::vector<int> cores;
  app.add_option("benchmarks", names, "what to measure: ring, rate, copy, local, fair")
      ->check(CLI::IsMember({"ring", "rate", "copy", "local", "fair"}));
  app.add_flag("-j,--json", options.json, "one JSON object a line instead of a table");
  app.add_flag("-q,--quick", options.quick,
               "a few seconds: shows that everything works; the figures mean little");
  app.add_option("-p,--pool", options.pool_bytes,
                 "bytes of each of the two pools that copies walk, such as 256M; pieces for which "
                 "a pool holds no 32 blocks are left out (default 1G, quick 64M)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{4} << 20, uint64_t{1} << 40));
  app.add_option("-r,--rounds", options.rounds, "rounds of each figure (default 5, quick 2)")
      ->check(CLI::Range(1, 1000));
  app.add_option("-c,--cores", cores,
                 "the poller's core and the client's, such as 2,3 (default: the first two of those "
                 "this process may use)")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  if (names.empty()) names = {"ring", "rate", "copy", "local", "fair"};
  if (options.pool_bytes == 0) options.pool_bytes = uint64_t{options.quick ? 64u : 1024u} << 20;
  if (options.rounds == 0) options.rounds = options.quick ? 2 : 5;

  catch_interrupts();
  const Status status = run_benchmarks(options, cores, names);
  if (interrupted()) {
    std::fprintf(stderr, "wherry-bench: interrupted\n");
    return kExitInterrupted;
  }
  if (status.ok()) return kExitDone;
  std::fprintf(stderr, "wherry-bench: %s\n", status.to_string().c_str());
  return kExitFailure;
}

}  // namespace
}  // namespace wherry::bench

int main(int argc, char** argv) { return wherry::bench::run(argc, argv); }
