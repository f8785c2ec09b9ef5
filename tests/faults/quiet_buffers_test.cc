// Promise P1: once a completion is there nobody touches the buffers, however the request ended.
//
// Requests of several pieces are cut off by a deadline or a cancel at every stage of their way. In
// the very moment a completion is seen both buffers are rewritten; what lands after that is found.
#include <iostream>
#include <random>

#include "tests/support/client_world.h"
#include "tests/support/counts.h"

namespace wherry::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kPiece = 64 << 10;  // what is copied between two looks at the rings
constexpr uint64_t kMaxBytes = 8 * kMiB;
constexpr uint32_t kRequests = 3;  // under way at once
constexpr std::byte kUntouched{0xee};
constexpr std::byte kRewritten{0xcc};
constexpr std::byte kPoison{0xdd};  // in the source, once its request has ended

bool all(const std::byte* at, uint64_t bytes, std::byte value) {
  return at[0] == value && std::memcmp(at, at + 1, bytes - 1) == 0;
}

class QuietBuffers : public HeldWorld {
 protected:
  QuietBuffers() {
    std::cout << "seed " << seed_ << "\n";
    Geometry geometry;
    geometry.dtype = DType::kUint8;
    geometry.num_blocks = static_cast<uint32_t>(kMaxBytes / (4 * kPiece));
    geometry.num_layers = 2;
    geometry.outer_dim = 2;
    geometry.page_size = 16;
    geometry.inner_dim = kPiece / 16;
    for (Landing& landing : landings_) {
      landing.region = make_region(client_, 2 * kMaxBytes);
      landing.from = *client_.register_layout(fully_contiguous(landing.region.handle, 0, geometry));
      landing.to =
          *client_.register_layout(fully_contiguous(landing.region.handle, kMaxBytes, geometry));
    }
  }

  // Starts requests and follows them to their ends; `look_ends` after each look at them.
  void round(const std::function<void()>& look_ends) {
    value_ = std::byte(1 + random(100));
    for (Landing& landing : landings_) prepare(landing);
    for (Landing& landing : landings_) begin(landing);
    const uint64_t give_up = deadline_in_ms(kHangMs);
    uint32_t left = kRequests;
    while (left != 0 && monotonic_ns() < give_up) {
      for (Landing& landing : landings_) {
        if (landing.ended) continue;
        if (landing.cancel_ns != 0 && monotonic_ns() >= landing.cancel_ns) {
          EXPECT_TRUE(landing.request.cancel().ok());
          landing.cancel_ns = 0;
        }
        if (!landing.request.poll()) continue;
        end(landing);
        --left;
      }
      look_ends();
    }
    ASSERT_EQ(left, 0u) << "a request never ended";
  }

  // Long after that.
  void expect_still_rewritten() {
    for (const Landing& landing : landings_) {
      EXPECT_TRUE(all(landing.region.data + kMaxBytes, landing.bytes, kRewritten))
          << "something landed after the completion";
    }
  }

  void expect_every_kind_of_end() const {
    std::cout << ok_ << " OK, " << late_ << " TIMED_OUT, " << cancelled_ << " CANCELLED; "
              << in_part_ << " cut off in the middle\n";
    EXPECT_TRUE(late_ > 0 && cancelled_ > 0 && in_part_ > 0);
  }

  static uint32_t rounds() { return static_cast<uint32_t>(counted(2000)); }
  uint64_t random(uint64_t below) { return random_() % below; }

  Client client_ = attach("solo");

 private:
  struct Landing {
    Region region;  // source, then destination
    LayoutHandle from;
    LayoutHandle to;
    std::vector<BlockId> blocks;
    uint64_t bytes = 0;
    TransferCompleteNotification request;
    uint64_t cancel_ns = 0;  // when; 0 = not
    bool ended = false;
  };

  void prepare(Landing& landing) {
    const auto blocks = static_cast<uint32_t>(4 + random(kMaxBytes / (4 * kPiece) - 3));
    landing.blocks = ids(0, blocks);
    landing.bytes = blocks * 4 * kPiece;
    landing.ended = false;
    std::memset(landing.region.data, static_cast<int>(value_), landing.bytes);
    std::memset(landing.region.data + kMaxBytes, static_cast<int>(kUntouched), landing.bytes);
  }

  void begin(Landing& landing) {
    TransferOptions options;
    // Any magnitude, so that on a fast and on a slow machine some fall into every stage.
    const uint64_t after_ns = 1 + random(uint64_t{1} << (8 + random(16)));
    const bool cancels = random(2) == 0;
    landing.cancel_ns = cancels ? monotonic_ns() + after_ns : 0;
    if (!cancels) options.timeout_ns = after_ns;
    const RegionHandle region = landing.region.handle;
    Result<TransferCompleteNotification> request =
        random(2) == 0
            ? client_.channel()->copy_range({region, 0, region, kMaxBytes, landing.bytes}, options)
            : client_.execute_local_transfer(landing.from, landing.to, landing.blocks,
                                             landing.blocks, options);
    ASSERT_TRUE(request.ok()) << request.status().to_string();
    landing.request = *request;
  }

  void end(Landing& landing) {
    const Completion& completion = *landing.request.completion();
    // Every other time before anything else: even to look takes long.
    if (random(2) == 0) check_arrived(landing, completion);
    std::memset(landing.region.data + kMaxBytes, static_cast<int>(kRewritten), landing.bytes);
    std::memset(landing.region.data, static_cast<int>(kPoison), landing.bytes);
    landing.ended = true;
    EXPECT_TRUE(completion.local_quiet && completion.remote_quiet);
    ok_ += completion.ok() ? 1 : 0;
    late_ += completion.status == Code::kTimedOut ? 1 : 0;
    cancelled_ += completion.status == Code::kCancelled ? 1 : 0;
    in_part_ += completion.bytes != 0 && completion.bytes != landing.bytes ? 1 : 0;
  }

  void check_arrived(const Landing& landing, const Completion& completion) {
    uint64_t arrived = 0;
    for (uint64_t at = 0; at < landing.bytes; at += kPiece) {
      const std::byte* piece = landing.region.data + kMaxBytes + at;
      const bool here = all(piece, kPiece, value_);
      EXPECT_TRUE(here || all(piece, kPiece, kUntouched)) << "half a piece";
      arrived += here ? kPiece : 0;
    }
    EXPECT_EQ(arrived, completion.bytes) << completion.to_string();
    if (completion.ok()) {
      EXPECT_EQ(arrived, landing.bytes);
    }
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  Landing landings_[kRequests];
  std::byte value_{};
  uint32_t ok_ = 0;
  uint32_t late_ = 0;
  uint32_t cancelled_ = 0;
  uint32_t in_part_ = 0;
};

TEST_F(QuietBuffers, NothingLandsAfterACompletionThatIsSeenInTheTurnItComes) {
  constexpr uint32_t kTurns = kRequests * kMaxBytes / kPiece;  // that all of them can take
  Hold engine(*this);
  for (uint32_t i = 0; i < rounds(); ++i) {
    round([&] { engine.turn(); });
    for (uint32_t turn = 0; turn < kTurns; ++turn) engine.turn();
    expect_still_rewritten();
  }
  expect_every_kind_of_end();
}

TEST_F(QuietBuffers, NothingLandsAfterACompletionThatIsSeenWhileTheEngineGoesOn) {
  const Region barrier = make_region(client_, 2 * kMiB);
  for (uint32_t i = 0; i < rounds(); ++i) {
    round([] {});
    // Behind all that the engine may still have had in hand.
    EXPECT_TRUE(
        wait(client_.channel()->copy_range({barrier.handle, 0, barrier.handle, kMiB, kMiB}))->ok());
    expect_still_rewritten();
  }
  expect_every_kind_of_end();
}

}  // namespace
}  // namespace wherry::test
