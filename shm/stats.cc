#include "shm/stats.h"

#include <array>

namespace wherry::shm {
namespace {

template <size_t kCount>
std::string_view name_of(const std::array<std::string_view, kCount>& names, uint32_t number) {
  return number < kCount ? names[number] : "unknown";
}

}  // namespace

std::string_view engine_state_name(EngineState state) {
  constexpr std::array<std::string_view, 5> kNames = {"starting", "running", "draining", "stopped",
                                                      "failed"};
  return name_of(kNames, static_cast<uint32_t>(state));
}

std::string_view poller_state_name(PollerState state) {
  constexpr std::array<std::string_view, 4> kNames = {"unused", "running", "asleep", "stopped"};
  return name_of(kNames, static_cast<uint32_t>(state));
}

std::string_view idle_strategy_text(uint32_t idle) {
  constexpr std::array<std::string_view, 4> kNames = {"busy", "adaptive", "sleep", "external"};
  return name_of(kNames, idle);
}

}  // namespace wherry::shm
