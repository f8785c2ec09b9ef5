// A client that moves blocks and sends messages, and compares what it is told of them with what it
// finds. Every block that ends is rewritten at once, so that whatever still lands is seen.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "clientlib/client.h"
#include "tests/support/engine_process.h"

namespace wherry::test {

inline constexpr uint32_t kBlocks = 16;
inline constexpr uint32_t kEarly =
    kBlocks / 2;  // submitted while the engine goes, the others after that
inline constexpr uint32_t kMessages = 2;
inline constexpr std::byte kUntouched{0xee};
inline constexpr std::byte kRewritten{0xcc};

// A request, and what is known of it.
struct Sent {
  TransferCompleteNotification notification;
  bool ended = false;
  Code status = Code::kOk;
};

// What became of the requests of one round.
struct Tally {
  uint32_t ok = 0;
  uint32_t not_started = 0;
  uint32_t gone = 0;

  void add(const Tally& other) {
    ok += other.ok;
    not_started += other.not_started;
    gone += other.gone;
  }
};

// A client with its blocks. Each round's requests are made and checked on a thread of its own.
class Mover {
 public:
  Mover(Client client, Geometry geometry)
      : client_(std::move(client)),
        channel_(*client_.open_channel()),
        block_bytes_(geometry.block_bytes()),
        region_(*client_.create_region(2 * kBlocks * block_bytes_)) {
    geometry.num_blocks = kBlocks;
    source_ = *client_.register_layout(fully_contiguous(region_.handle, 0, geometry));
    destination_ = *client_.register_layout(
        fully_contiguous(region_.handle, kBlocks * block_bytes_, geometry));
    channel_.release();
  }

  void begin(uint32_t round, ClientHandle neighbour) {
    round_ = round;
    neighbour_ = neighbour;
    blocks_.clear();
    messages_.clear();
    tally_ = Tally{};
    submitted_ = false;
    std::memset(region_.data, static_cast<int>(round), kBlocks * block_bytes_);
    std::memset(block(0), static_cast<int>(kUntouched), kBlocks * block_bytes_);
  }

  // Until all that was accepted has ended; the second half is submitted once `rest` is true.
  void work(const std::atomic<bool>& rest) {
    bool taken = submit(0, kEarly);
    for (uint32_t i = 0; taken && i < kMessages; ++i) {
      Result<TransferCompleteNotification> sent = channel_.try_notify(neighbour_, message(i));
      taken = accepted(sent.status());
      if (taken) messages_.push_back({*sent});
    }
    while (!rest.load()) {
      look();
      std::this_thread::yield();
    }
    if (taken) submit(kEarly, kBlocks);
    submitted_ = true;
    const uint64_t give_up = deadline_in_ms(kWaitMs);
    while (!look()) {
      if (monotonic_ns() > give_up) return violation("a request never ended");
      std::this_thread::yield();
    }
    channel_.release();
  }

  // After the engine's death: what ended is as it was left, the rest untouched.
  void check_memory() {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      if (!all(i, i < blocks_.size() ? kRewritten : kUntouched)) {
        violation("block " + std::to_string(i) + " was written after its request had ended");
      }
    }
  }

  // What `receiver` has got against what the sender of these messages was told.
  void check_messages(Mover& receiver) {
    const std::vector<Notification> arrived = *receiver.client_.poll_notifications();
    for (uint32_t i = 0; i < messages_.size(); ++i) {
      const auto copies = std::count_if(arrived.begin(), arrived.end(),
                                        [&](const auto& one) { return one.bytes == message(i); });
      const Code status = messages_[i].status;
      if (copies > 1 || (status == Code::kOk && copies == 0) ||
          (status == Code::kNotStarted && copies == 1)) {
        violation("a message that ended as " + std::string(code_name(status)) + " arrived " +
                  std::to_string(copies) + " times");
      }
    }
  }

  Client& client() { return client_; }
  bool submitted() const { return submitted_.load(); }
  const Tally& tally() const { return tally_; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::byte* block(uint32_t index) { return region_.data + (kBlocks + index) * block_bytes_; }
  bool all(uint32_t index, std::byte value) {
    const std::byte* at = block(index);
    return at[0] == value && std::memcmp(at, at + 1, block_bytes_ - 1) == 0;
  }
  std::string message(uint32_t index) const {
    return std::to_string(round_) + "/" + std::to_string(index);
  }
  void violation(const std::string& text) { violations_.push_back(text); }

  // Whether it was; the only thing it may be refused for is that the engine's death was noticed.
  bool accepted(const Status& status) {
    if (!status.ok() && status.code() != Code::kEngineGone) violation(status.to_string());
    return status.ok();
  }

  bool submit(uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; ++i) {
      const BlockId id[] = {i};
      Result<TransferCompleteNotification> sent =
          channel_.try_execute_local_transfer(source_, destination_, id, id);
      if (!accepted(sent.status())) return false;
      blocks_.push_back({*sent});
    }
    return true;
  }

  // Whether everything has ended.
  bool look() {
    bool all_ended = true;
    for (uint32_t i = 0; i < blocks_.size(); ++i) {
      if (ends_now(blocks_[i])) check_block(i);
      all_ended = all_ended && blocks_[i].ended;
    }
    for (Sent& sent : messages_) {
      ends_now(sent);
      all_ended = all_ended && sent.ended;
    }
    return all_ended;
  }

  bool ends_now(Sent& sent) {
    if (sent.ended || !sent.notification.poll()) return false;
    const Completion& completion = *sent.notification.completion();
    sent.ended = true;
    sent.status = completion.status;
    tally_.ok += completion.ok() ? 1 : 0;
    tally_.not_started += completion.status == Code::kNotStarted ? 1 : 0;
    tally_.gone += completion.status == Code::kEngineGone ? 1 : 0;
    const bool known = completion.ok() || completion.status == Code::kNotStarted ||
                       completion.status == Code::kEngineGone;
    if (!known) violation(completion.to_string());
    if (!completion.local_quiet || !completion.remote_quiet) violation("ended, but not quiet");
    return true;
  }

  void check_block(uint32_t index) {
    const Code status = blocks_[index].status;
    if (status == Code::kOk && !all(index, std::byte(round_))) {
      violation("OK, but not all of the block arrived");
    }
    if (status == Code::kNotStarted && !all(index, kUntouched)) {
      violation("NOT_STARTED, but some of the block arrived");
    }
    std::memset(block(index), static_cast<int>(kRewritten), block_bytes_);
  }

  Client client_;
  Channel channel_;
  uint64_t block_bytes_;
  Region region_;
  LayoutHandle source_;
  LayoutHandle destination_;
  uint32_t round_ = 0;
  ClientHandle neighbour_;
  std::vector<Sent> blocks_;
  std::vector<Sent> messages_;
  Tally tally_;
  std::atomic<bool> submitted_{false};
  std::vector<std::string> violations_;
};

}  // namespace wherry::test
