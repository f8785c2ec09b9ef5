// Setting: what every benchmark needs: cores, engine, client, gate and where the figures go.
//
// Main thread. The engine's poller has one core and this thread another; where there is only one
// usable core neither is pinned and the poller sleeps when it has nothing to do.
#pragma once

#include <cstdint>
#include <string>

#include "clientlib/client.h"
#include "tools/bench/engine_child.h"
#include "tools/bench/gate.h"
#include "tools/bench/report.h"

namespace wherry::bench {

struct Options {
  bool quick = false;  // a try that everything works: small, few rounds
  bool json = false;
  uint64_t pool_bytes = 0;  // of each of the two pools that copies walk
  uint32_t rounds = 0;
};

struct Cores {
  int engine = -1;  // -1: not pinned
  int client = -1;
  bool two() const { return engine >= 0; }
};

// Longest that anything is waited for: only catches hangs, since the engine ends every request
// before that.
inline constexpr uint64_t kLongestNs = 60'000'000'000;

struct Setting {
  const Options& options;
  const Cores cores;
  EngineChild& engine;
  EngineChild* shared_core;  // an adaptive engine on the client's core; null without two cores
  EngineChild* helped;       // as `engine`, but adaptive, with a copy thread; null like that one
  Client& client;
  Gate& gate;
  Report& report;

  // What rounds came to: value in `column`, floor in the next one. Without the floor's name.
  Figure figure(const std::string& bench, const std::string& name, const std::string& unit,
                const Rounds& rounds, size_t column) const;
};

// While it lives the engine stands still and this thread runs on the poller's core: for floors.
class OnEngineCore {
 public:
  static Result<OnEngineCore> enter(Setting& setting);
  OnEngineCore(OnEngineCore&& other) noexcept;
  OnEngineCore& operator=(OnEngineCore&& other) = delete;
  ~OnEngineCore();

 private:
  explicit OnEngineCore(Setting& setting) : setting_(&setting) {}

  Setting* setting_;
};

// Until the request is complete: its completion, or why there is none. Spins where this thread has
// a core of its own.
Result<Completion> await(const Setting& setting, TransferCompleteNotification& request);

}  // namespace wherry::bench
