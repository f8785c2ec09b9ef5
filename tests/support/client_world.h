// Clients of an engine in this process, and layouts of theirs whose every byte can be told.
//
// A layout lies in a region of its own that is filled with guard bytes, with a gap before, between
// and behind its parts. What a transfer must have done is drawn in an image of the region, and then
// the whole region is compared with it: what was to arrive, what was to stay, and the gaps.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "clientlib/client.h"
#include "tests/support/pattern.h"
#include "tests/support/raw_client.h"

namespace wherry::test {

inline constexpr uint64_t kHangMs = 120'000;  // only catches hangs
inline constexpr LayoutKind kAllKinds[] = {
    LayoutKind::kFullyContiguous, LayoutKind::kLayerSeparateBlockFirst,
    LayoutKind::kLayerSeparateBlockSecond, LayoutKind::kDescriptorList};

// K and V, three layers, an odd number of bytes in each piece.
inline Geometry small_geometry(uint32_t blocks = 8) {
  Geometry g;
  g.dtype = DType::kUint8;
  g.num_blocks = blocks;
  g.num_layers = 3;
  g.outer_dim = 2;
  g.page_size = 4;
  g.inner_dim = 37;
  return g;
}

inline std::vector<BlockId> ids(uint32_t first, uint32_t count) {
  std::vector<BlockId> list;
  for (uint32_t i = 0; i < count; ++i) list.push_back(first + i);
  return list;
}

class Image;

// A layout in a region of its own.
struct Placed {
  Region region;
  LayoutSpec spec;
  LayoutHandle layout;

  // Where (block, layer, outer) lies in the region.
  uint64_t offset(uint32_t block, uint32_t layer, uint32_t outer) const {
    const Geometry& g = spec.geometry;
    return spec.parts[part_of(g, block, layer)].offset + offset_in_part(g, block, layer, outer);
  }
  // Writes the pattern of each of its blocks.
  void fill_all(uint64_t seed) const {
    const Geometry& g = spec.geometry;
    for (uint32_t block = 0; block < g.num_blocks; ++block) {
      for (uint32_t layer = 0; layer < g.num_layers; ++layer) {
        for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
          fill(region.data + offset(block, layer, outer), g.region_bytes(), block, layer, outer,
               seed);
        }
      }
    }
  }
};

// What a region has to look like.
class Image {
 public:
  // As it is now.
  explicit Image(const Placed& placed)
      : placed_(placed), bytes_(placed.region.data, placed.region.data + placed.region.bytes) {}

  // Layers [first, end) of `block` hold what `as` of a layout filled with `seed` holds.
  Image& block(uint32_t block, uint32_t as, uint64_t seed, uint32_t first = 0,
               uint32_t end = UINT32_MAX) {
    const Geometry& g = placed_.spec.geometry;
    for (uint32_t layer = first; layer < std::min(end, g.num_layers); ++layer) {
      for (uint32_t outer = 0; outer < g.outer_dim; ++outer) {
        fill(bytes_.data() + placed_.offset(block, layer, outer), g.region_bytes(), as, layer,
             outer, seed);
      }
    }
    return *this;
  }

  // Whether the region looks so; else where it differs first.
  ::testing::AssertionResult holds() const {
    const auto at = std::mismatch(bytes_.begin(), bytes_.end(), placed_.region.data);
    if (at.first == bytes_.end()) return ::testing::AssertionSuccess();
    const auto offset = static_cast<uint64_t>(at.first - bytes_.begin());
    return ::testing::AssertionFailure()
           << "byte " << offset << " of " << bytes_.size() << " is "
           << static_cast<uint32_t>(*at.second) << ", wanted " << static_cast<uint32_t>(*at.first);
  }

 private:
  const Placed& placed_;
  std::vector<std::byte> bytes_;
};

// The outcome of a request: waits for it.
inline Result<Completion> wait(Result<TransferCompleteNotification> request) {
  if (!request.ok()) return request.status();
  return request->wait(deadline_in_ms(kHangMs));
}

// Code and text of what was refused at once or came back in a completion.
inline Status outcome(Result<TransferCompleteNotification> request) {
  const Result<Completion> completion = wait(std::move(request));
  if (!completion.ok()) return completion.status();
  return completion->ok() ? Status() : Status(completion->status, completion->to_string());
}

// Whether a Status has the code, and its message each of the texts.
inline ::testing::AssertionResult says(const Status& status, Code code,
                                       const std::vector<std::string>& texts) {
  if (status.code() != code) {
    return ::testing::AssertionFailure()
           << "wanted " << code_name(code) << ", got " << status.to_string();
  }
  for (const std::string& text : texts) {
    if (status.message().find(text) == std::string::npos) {
      return ::testing::AssertionFailure()
             << "wanted \"" << text << "\" in: " << status.to_string();
    }
  }
  return ::testing::AssertionSuccess();
}

class ClientWorld : public ::testing::Test {
 protected:
  explicit ClientWorld(const std::function<void(engine::Config*)>& change = {}) : engine_(change) {}

  Client attach(const std::string& instance, uint32_t rank = 0, AttachOptions options = {}) {
    options.instance = instance;
    options.rank = rank;
    options.run_dir = engine_->run_dir();
    options.wait_ms = kHangMs;
    Result<Client> client = Client::attach(options);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return *client;
  }

  static Region make_region(Client& client, uint64_t bytes) {
    Result<Region> region = client.create_region(bytes);
    EXPECT_TRUE(region.ok()) << region.status().to_string();
    return region.ok() ? *region : Region{};
  }

  // A layout of this kind, whatever the geometry says, among guard bytes.
  static Placed place(Client& client, LayoutKind kind,
                      const Geometry& geometry = small_geometry()) {
    constexpr uint64_t kGap = 61;
    Placed placed;
    Geometry& g = placed.spec.geometry;
    g = geometry;
    g.kind = kind;
    placed.region = make_region(client, g.part_count() * (g.part_bytes() + kGap) + kGap);
    std::memset(placed.region.data, static_cast<int>(kGuard), placed.region.bytes);
    for (uint32_t part = 0; part < g.part_count(); ++part) {
      placed.spec.parts.push_back(
          {placed.region.handle, kGap + uint64_t{part} * (g.part_bytes() + kGap), g.part_bytes()});
    }
    Result<LayoutHandle> layout = client.register_layout(placed.spec);
    EXPECT_TRUE(layout.ok()) << layout.status().to_string();
    if (layout.ok()) placed.layout = *layout;
    return placed;
  }

  EngineHost engine_;
};

// An engine whose poller turns on a thread of the test's, and stands still while a Hold lives.
class HeldWorld : public ClientWorld {
 protected:
  explicit HeldWorld(const std::function<void(engine::Config*)>& change = {})
      : ClientWorld([&](engine::Config* config) {
          config->pollers[0].idle = engine::IdleStrategy::kExternal;
          if (change) change(config);
        }) {
    go_on();
  }
  ~HeldWorld() override { stand_still(); }

  class Hold {
   public:
    explicit Hold(HeldWorld& world) : world_(world) { world_.stand_still(); }
    ~Hold() { world_.go_on(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // One turn of the poller.
    void turn() { world_.engine_->poller(0)->poll_once(); }

   private:
    HeldWorld& world_;
  };

 private:
  void stand_still() {
    held_ = true;
    if (turning_.joinable()) turning_.join();
  }
  void go_on() {
    held_ = false;
    turning_ = std::thread([this] {
      while (!held_) {
        if (engine_->poller(0)->poll_once() == 0) std::this_thread::yield();
      }
    });
  }

  std::atomic<bool> held_{false};
  std::thread turning_;
};

}  // namespace wherry::test
