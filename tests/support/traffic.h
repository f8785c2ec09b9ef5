// A client that keeps copies in flight, a window of them, and looks at every byte of each.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "clientlib/client.h"

namespace wherry::test {

class Traffic {
 public:
  static constexpr uint64_t kHangMs = 120'000;  // only catches hangs

  // On a channel of its own, which belongs to the calling thread.
  Traffic(Client client, uint32_t window, uint64_t bytes)
      : client_(std::move(client)), channel_(*client_.open_channel()), bytes_(bytes) {
    region_ = *client_.create_region(2 * window * bytes);
    for (uint32_t i = 0; i < window; ++i) copies_.push_back({});
  }

  // Starts copies until the window is full.
  Status fill() {
    for (; begun_ < ended_ + copies_.size(); ++begun_) {
      const uint64_t at = begun_ % copies_.size() * bytes_;
      const uint64_t to = at + copies_.size() * bytes_;
      std::memset(region_.data + at, value(begun_), bytes_);
      std::memset(region_.data + to, ~value(begun_), bytes_);
      Result<TransferCompleteNotification> copy =
          channel_.copy_range({region_.handle, at, region_.handle, to, bytes_});
      if (!copy.ok()) return copy.status();
      copies_[begun_ % copies_.size()] = *copy;
    }
    return {};
  }

  // Waits for the oldest copy and checks it, then fills up again.
  Status next() {
    if (Status status = fill(); !status.ok()) return status;
    if (Status status = take(); !status.ok()) return status;
    return fill();
  }

  // Waits for all that are under way.
  Status finish() {
    while (ended_ != begun_) {
      if (Status status = take(); !status.ok()) return status;
    }
    return {};
  }

  uint64_t ended() const { return ended_; }
  Client& client() { return client_; }

 private:
  static uint8_t value(uint64_t number) { return static_cast<uint8_t>(number % 251 + 1); }

  Status take() {
    const uint64_t index = ended_ % copies_.size();
    const Result<Completion> copy = copies_[index].wait(deadline_in_ms(kHangMs));
    if (!copy.ok()) return copy.status();
    if (!copy->ok()) return {copy->status, copy->to_string()};
    const std::byte* at = region_.data + (copies_.size() + index) * bytes_;
    const bool right =
        at[0] == std::byte{value(ended_)} && std::memcmp(at, at + 1, bytes_ - 1) == 0;
    if (!right) return {Code::kInternal, "copy " + std::to_string(ended_) + " is not all there"};
    ++ended_;
    return {};
  }

  Client client_;
  Channel channel_;
  uint64_t bytes_;
  Region region_;
  std::vector<TransferCompleteNotification> copies_;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace wherry::test
