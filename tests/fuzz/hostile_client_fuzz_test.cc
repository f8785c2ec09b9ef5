// Hostile clients, one after another, beside a good one: whatever they do, the engine lives, only
// their own sessions end, nothing is left of them, and the good one gets its data.
//
// WHERRY_FUZZ_SEED=<seed> begins with the round of that seed, WHERRY_FUZZ_ROUNDS says how many.
#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/hostile_client.h"
#include "tests/support/client_world.h"
#include "tests/support/forked_engine.h"

namespace wherry::fuzz {
namespace {

using test::json;

constexpr uint64_t kRounds = 6'000;
constexpr uint32_t kBlocks = 16;
constexpr int kActs = 40;

uint64_t round_count() {
  const char* wanted = std::getenv("WHERRY_FUZZ_ROUNDS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : test::counted(kRounds);
}

// Only to get at place().
struct Layouts : test::ClientWorld {
  using ClientWorld::place;
};

// A client as it should be, whose every byte is looked at.
class GoodClient {
 public:
  explicit GoodClient(const std::string& run_dir) : client_(attached(run_dir)) {
    const Geometry geometry = test::small_geometry(kBlocks);
    source_ = Layouts::place(client_, LayoutKind::kFullyContiguous, geometry);
    destination_ = Layouts::place(client_, LayoutKind::kLayerSeparateBlockFirst, geometry);
    source_.fill_all(0);
    EXPECT_TRUE(client_.publish(source_.layout, Tier::kG2, Rights::kRead).ok());
    open_ = Layouts::place(client_, LayoutKind::kFullyContiguous, open_geometry());
    EXPECT_TRUE(client_.publish(open_.layout, Tier::kG1, Rights::kReadWrite).ok());
  }

  // Begins to move some blocks.
  void begin(Dice& dice) {
    seed_ = dice.any();
    source_.fill_all(seed_);
    std::vector<BlockId> from;
    std::vector<BlockId> to;
    image_ = std::make_unique<test::Image>(destination_);
    source_image_ = std::make_unique<test::Image>(source_);
    for (uint32_t to_block = 0; to_block < kBlocks; ++to_block) {
      if (dice.one_in(2)) continue;
      from.push_back(static_cast<BlockId>(dice.below(kBlocks)));
      to.push_back(to_block);
      image_->block(to_block, from.back(), seed_);
    }
    request_.emplace(client_.execute_local_transfer(source_.layout, destination_.layout, from, to));
  }

  // What was begun is there and nothing else is changed, not even where it came from.
  void expect_arrived() {
    if (!request_.has_value()) return;
    const Result<Completion> completion = test::wait(std::move(*request_));
    ASSERT_TRUE(completion.ok()) << completion.status().to_string();
    EXPECT_EQ(completion->status, Code::kOk) << completion->to_string();
    EXPECT_TRUE(image_->holds());
    EXPECT_TRUE(source_image_->holds()) << "to others it is published for reading only";
    EXPECT_TRUE(client_.poll_notifications().ok());
    request_.reset();
    expect_guards();
  }

  void expect_undisturbed() const {
    EXPECT_EQ(client_.engine_state().attached, 1u) << client_.engine_state().reason;
    EXPECT_EQ(client_.engine_state().life, EngineLife::kRunning);
  }

 private:
  // As RawClient::layout() has it: fits the hostile client's own.
  static Geometry open_geometry() {
    Geometry g;
    g.inner_order = InnerOrder::kNhd;
    g.dtype = DType::kUint8;
    g.num_blocks = 48;
    g.num_layers = 1;
    g.outer_dim = 2;
    g.page_size = 4;
    g.inner_dim = 16;
    return g;
  }

  // Anybody may write to its blocks, and to nothing before or behind them.
  void expect_guards() const {
    const std::byte* const region = open_.region.data;
    const std::byte* const begin = region + open_.spec.parts.front().offset;
    const std::byte* const end = begin + open_.spec.parts.front().length;
    const auto guard = [](std::byte b) { return b == test::kGuard; };
    EXPECT_TRUE(std::all_of(region, begin, guard)) << "before the first block";
    EXPECT_TRUE(std::all_of(end, region + open_.region.bytes, guard)) << "behind the last block";
  }

  static Client attached(const std::string& run_dir) {
    AttachOptions options;
    options.instance = "good";
    options.run_dir = run_dir;
    options.wait_ms = test::kHangMs;
    Result<Client> client = Client::attach(options);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return *client;
  }

  Client client_;
  test::Placed source_;
  test::Placed destination_;
  test::Placed open_;  // to everybody, for writing too
  uint64_t seed_ = 0;
  std::unique_ptr<test::Image> image_;
  std::unique_ptr<test::Image> source_image_;
  std::optional<Result<TransferCompleteNotification>> request_;
};

size_t count_descriptors(pid_t pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

size_t count_memfd_mappings(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:") != std::string::npos;
  return count;
}

class HostileClients : public ::testing::Test {
 protected:
  // The engine hangs up on who does not say in time what it wants, and a round may take long.
  void SetUp() override { wait_until_alone(); }

  json clients() {
    const json reply = admin_.call("admin", {{"command", "clients"}});
    return reply.is_object() ? reply["clients"] : json();
  }

  // Nobody but the good one is left, or the engine is no more.
  void wait_until_alone() {
    json all = clients();
    const uint64_t end = deadline_in_ms(test::kHangMs);
    while (all.is_array() && all.size() > 1 && monotonic_ns() < end) all = clients();
    ASSERT_TRUE(all.is_array()) << "the engine does not answer";
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0]["instance"], "good");
    EXPECT_EQ(all[0]["state"], "active");
  }

  void round(uint64_t seed, Findings* findings) {
    Dice dice(seed);
    {
      HostileClient hostile(path_, "hostile", dice.any(), findings);
      for (int act = 0; act < kActs && !hostile.ended(); ++act) {
        if (act % 8 == 0) good_.begin(dice);
        hostile.act();
        if (act % 8 == 7) good_.expect_arrived();
      }
      good_.expect_arrived();
      good_.begin(dice);
      good_.expect_arrived();
      hostile.listen();
    }
    wait_until_alone();
    good_.expect_undisturbed();
  }

  test::ForkedEngine engine_{{}, [] {
                               // Every session would be told of.
                               if (std::getenv("WHERRY_TEST_LOG") == nullptr)
                                 dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
                             }};
  const std::string path_ = engine_.socket_path();
  test::RawClient admin_{path_};
  GoodClient good_{engine_.run_dir()};
};

TEST_F(HostileClients, EndNobodyButThemselves) {
  signal(SIGPIPE, SIG_IGN);  // for what is written to sockets here; the engine has to live with it
  const uint64_t first = seed();
  const uint64_t last = first + round_count();
  std::cout << "WHERRY_FUZZ_SEED=" << first << std::endl;
  Findings findings;
  const size_t descriptors = count_descriptors(engine_.pid());
  const size_t mappings = count_memfd_mappings(engine_.pid());
  for (uint64_t seed = first; seed != last && !HasFailure(); ++seed) {
    SCOPED_TRACE("the round of WHERRY_FUZZ_SEED=" + std::to_string(seed));
    round(seed, &findings);
  }
  for (const auto& [what, count] : findings) std::cout << count << " " << what << "\n";
  if (HasFailure()) return;
  if (last - first >= 300) {
    // It gets where it wants to.
    for (const char* wanted :
         {"completion OK", "completion NOT_PERMITTED", "completion OUT_OF_RANGE",
          "completion STALE", "end record without credit", "end record: unknown op", "reply OK",
          "reply INVALID_ARGUMENT", "reply STALE"}) {
      EXPECT_NE(findings[wanted], 0u) << wanted;
    }
  }
  // Odd descriptors are closed by a thread that nobody waits for.
  const uint64_t end = deadline_in_ms(test::kHangMs / 4);
  while (count_descriptors(engine_.pid()) > descriptors && monotonic_ns() < end) clients();
  EXPECT_EQ(count_descriptors(engine_.pid()), descriptors);
  EXPECT_EQ(count_memfd_mappings(engine_.pid()), mappings);
  EXPECT_EQ(test::code_of(admin_.call("admin", {{"command", "stop"}})), "OK");
  EXPECT_EQ(engine_.exit_status(), 0);
}

}  // namespace
}  // namespace wherry::fuzz
