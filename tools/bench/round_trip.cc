#include "tools/bench/round_trip.h"

namespace wherry::bench {

Status round_trips(const Setting& setting, Channel& channel, const RoundTrip& what, uint32_t count,
                   std::vector<uint32_t>* samples) {
  constexpr int kPatience = 100'000;
  const uint32_t warm_up = count / 10;
  TransferOptions options;
  options.required_transport = what.transport;
  for (uint32_t i = 0; i < count + warm_up; ++i) {
    const uint64_t before = monotonic_ns();
    Result<TransferCompleteNotification> request = channel.try_execute_local_transfer(
        what.layouts->source, what.layouts->destination, what.blocks, what.blocks, options);
    if (!request.ok()) return request.status();
    // What a caller does that has nothing else to do; the rest is for when that takes long.
    for (int polls = 0; what.spin && polls < kPatience && !request->poll(); ++polls) {
    }
    if (request->completion() == nullptr) {
      const Result<Completion> awaited =
          what.spin ? await(setting, *request) : request->wait(monotonic_ns() + kLongestNs);
      if (!awaited.ok()) return awaited.status();
    }
    const uint64_t now = monotonic_ns();
    const Completion& completion = *request->completion();
    if (!completion.ok()) return {completion.status, completion.to_string()};
    if (i >= warm_up) samples->push_back(static_cast<uint32_t>(now - before));
    if (!what.between) continue;
    if (Status s = what.between(); !s.ok()) return s;
  }
  return {};
}

}  // namespace wherry::bench
