#include "tools/bench/setting.h"

#include <utility>

#include "engine/control/affinity.h"
#include "shm/relax.h"
#include "tools/bench/summary.h"

namespace wherry::bench {
namespace {

constexpr uint32_t kPollsPerLook = 4096;

}  // namespace

Figure Setting::figure(const std::string& bench, const std::string& name, const std::string& unit,
                       const Rounds& rounds, size_t column) const {
  const Summary value = summarize(rounds.column(column));
  Figure figure;
  figure.bench = bench;
  figure.name = name;
  figure.value = value.median;
  figure.unit = unit;
  figure.floor = summarize(rounds.column(column + 1)).median;
  figure.rounds = static_cast<uint32_t>(rounds.rounds.size());
  figure.disturbed = rounds.disturbed;
  figure.spread = value.spread;
  return figure;
}

Result<OnEngineCore> OnEngineCore::enter(Setting& setting) {
  if (Status status = setting.engine.pause(); !status.ok()) return status;
  OnEngineCore here(setting);
  if (Status status = engine::pin_this_thread(setting.cores.engine); !status.ok()) return status;
  return here;
}

OnEngineCore::OnEngineCore(OnEngineCore&& other) noexcept
    : setting_(std::exchange(other.setting_, nullptr)) {}

OnEngineCore::~OnEngineCore() {
  if (setting_ == nullptr) return;
  // It has run there before, so this cannot fail.
  static_cast<void>(engine::pin_this_thread(setting_->cores.client));
  setting_->engine.resume();
}

Result<Completion> await(const Setting& setting, TransferCompleteNotification& request) {
  const uint64_t deadline = monotonic_ns() + kLongestNs;
  if (!setting.cores.two()) return request.wait(deadline);
  for (uint32_t polls = 1; !request.poll(); ++polls) {
    shm::relax();  // the engine may run on the same core's other half
    if (polls % kPollsPerLook == 0 && monotonic_ns() > deadline) return request.wait(deadline);
  }
  return *request.completion();
}

}  // namespace wherry::bench
