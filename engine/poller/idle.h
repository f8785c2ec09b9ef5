// Idle strategies: what a poller does when a turn found no work.
//
// busy      pauses and looks again, for ever: claims its core.
// adaptive  spins for a budget, then sleeps on every wake-up source; the budget halves when a spin
// ended
//           in a sleep all the same, and is restored when spinning caught work.
// sleep     sleeps at once: test machines, laptops.
// external  somebody else calls poll_once(): deterministic tests.
// One object per poller, used by its thread only. Nothing fails.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace wherry::engine {

enum class IdleStrategy : uint8_t { kBusy = 0, kAdaptive = 1, kSleep = 2, kExternal = 3 };

inline std::string_view idle_strategy_name(IdleStrategy idle) {
  constexpr std::string_view kNames[] = {"busy", "adaptive", "sleep", "external"};
  return kNames[static_cast<uint8_t>(idle)];
}

inline std::optional<IdleStrategy> idle_strategy_from_name(std::string_view name) {
  for (uint8_t i = 0; i < 4; ++i) {
    if (name == idle_strategy_name(static_cast<IdleStrategy>(i)))
      return static_cast<IdleStrategy>(i);
  }
  return std::nullopt;
}

class IdlePolicy {
 public:
  IdlePolicy(IdleStrategy strategy, uint64_t spin_ns)
      : strategy_(strategy), full_ns_(spin_ns), budget_ns_(spin_ns) {}

  // After a turn with work.
  void worked(uint64_t now_ns) {
    if (spinning_ && now_ns > idle_since_ns_) budget_ns_ = full_ns_;
    spinning_ = false;
  }

  // After a turn without; true when the poller is to sleep now.
  bool should_sleep(uint64_t now_ns) {
    if (strategy_ == IdleStrategy::kSleep) return true;
    if (strategy_ != IdleStrategy::kAdaptive) return false;
    if (!spinning_) {
      spinning_ = true;
      idle_since_ns_ = now_ns;
    }
    if (now_ns - idle_since_ns_ < budget_ns_) return false;
    budget_ns_ = std::max(budget_ns_ / 2, full_ns_ / kFloor);
    spinning_ = false;
    return true;
  }

  IdleStrategy strategy() const { return strategy_; }
  uint64_t budget_ns() const { return budget_ns_; }

 private:
  static constexpr uint64_t kFloor = 16;  // the budget never falls below a sixteenth

  IdleStrategy strategy_;
  uint64_t full_ns_;
  uint64_t budget_ns_;
  uint64_t idle_since_ns_ = 0;
  bool spinning_ = false;
};

}  // namespace wherry::engine
