// Engine and clients in odd surroundings: namespaces of their own, limits, privileges taken away.
// All of it works as ever.
#include "tests/faults/surroundings.h"

#include <sys/mman.h>

#include <cstdio>
#include <vector>

#include "clientlib/client.h"
#include "tests/support/pattern.h"
#include "tests/support/raw_client.h"

namespace wherry::test {
namespace {

constexpr uint64_t kHangMs = 120'000;  // only catches hangs
constexpr uint32_t kBlocks = 8;
constexpr uint64_t kBlockSize = uint64_t{1} << 20;  // more than a small /dev/shm, and than memlock

int failed(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  return 1;
}

Geometry geometry() {
  Geometry g;
  g.dtype = DType::kUint8;
  g.num_blocks = kBlocks;
  g.num_layers = 1;
  g.outer_dim = 1;
  g.page_size = 16;
  g.inner_dim = kBlockSize / 16;
  return g;
}

Result<Client> attached(const std::string& run_dir, const std::string& instance) {
  AttachOptions options;
  options.instance = instance;
  options.run_dir = run_dir;
  options.wait_ms = kHangMs;
  return Client::attach(options);
}

Result<LayoutHandle> layout_of(Client& client, const Region& region) {
  LayoutSpec spec;
  spec.geometry = geometry();
  spec.parts = {{region.handle, region.offset, kBlocks * kBlockSize}};
  return client.register_layout(spec);
}

void fill_blocks(std::byte* at, uint64_t seed) {
  for (uint32_t b = 0; b < kBlocks; ++b) fill(at + b * kBlockSize, kBlockSize, b, 0, 0, seed);
}

// Moves all blocks, reversed, and looks at every byte.
int move_and_check(Client& client, LayoutHandle source, LayoutHandle destination,
                   const std::byte* arrived, uint64_t seed) {
  std::vector<BlockId> from;
  std::vector<BlockId> to;
  for (uint32_t b = 0; b < kBlocks; ++b) from.push_back(b), to.push_back(kBlocks - 1 - b);
  auto request = client.execute_local_transfer(source, destination, from, to);
  if (!request.ok()) return failed("transfer", request.status());
  const Result<Completion> completion = request->wait(deadline_in_ms(kHangMs));
  if (!completion.ok()) return failed("waiting", completion.status());
  if (completion->status != Code::kOk) return failed("end", {completion->status, "transfer"});
  for (uint32_t b = 0; b < kBlocks; ++b) {
    if (first_difference(arrived + (kBlocks - 1 - b) * kBlockSize, kBlockSize, b, 0, 0, seed) !=
        kBlockSize) {
      return failed("data", {Code::kInternal, "block " + std::to_string(b) + " is wrong"});
    }
  }
  return 0;
}

// What a client does with memory of its own: shared and adopted.
int use_engine(const std::string& run_dir) {
  Result<Client> client = attached(run_dir, "worker");
  if (!client.ok()) return failed("attach", client.status());
  Result<Region> shared = client->create_region(kBlocks * kBlockSize);
  if (!shared.ok()) return failed("create_region", shared.status());
  void* const own = mmap(nullptr, kBlocks * kBlockSize, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(own, 1, kBlocks * kBlockSize);
  AdoptOptions adopt;
  adopt.own_mapping = true;
  Result<Region> adopted = client->adopt_region(own, kBlocks * kBlockSize, adopt);
  if (!adopted.ok()) return failed("adopt_region", adopted.status());
  const auto one = layout_of(*client, *shared);
  const auto two = layout_of(*client, *adopted);
  if (!one.ok() || !two.ok())
    return failed("register_layout", one.ok() ? two.status() : one.status());
  fill_blocks(shared->data, 5);
  if (move_and_check(*client, *one, *two, static_cast<std::byte*>(own), 5) != 0) return 1;
  fill_blocks(static_cast<std::byte*>(own), 6);
  return move_and_check(*client, *two, *one, shared->data, 6);
}

class Surroundings : public ::testing::Test {
 protected:
  // A wherryd in these surroundings.
  std::unique_ptr<ProcessIn> engine_in(const Enter& enter, const std::string& config = "{}") {
    return std::make_unique<ProcessIn>(enter, [this, config] {
      const std::string path = directory_ / "config.json";
      tests::write_file(path, config);
      const int log = open((directory_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      if (log >= 0) dup2(log, STDERR_FILENO);
      execl(WHERRY_BIN_DIR "/wherryd", "wherryd", "--run-dir", run_dir_.c_str(), "--config",
            path.c_str(), nullptr);
      return 127;
    });
  }

  // A client in these works with an engine in those, or the test is skipped.
  void expect_to_work(ProcessIn& engine, const Enter& enter) {
    if (!engine.problem().empty()) GTEST_SKIP() << "the kernel refuses " << engine.problem();
    ProcessIn client(enter, [this] { return use_engine(run_dir_); });
    ASSERT_EQ(client.problem(), "");
    EXPECT_EQ(client.exit_status(), 0) << tests::read_file(directory_ / "log");
  }

  void expect_to_drain(ProcessIn& engine) {
    if (!engine.problem().empty()) return;
    engine.signal(SIGTERM);
    EXPECT_EQ(engine.exit_status(), 0) << tests::read_file(directory_ / "log");
  }

  tests::TemporaryDirectory directory_;
  const std::string run_dir_ = directory_ / "run";
  const std::string sleeping_ = R"({"pollers": [{"idle": "sleep"}]})";
};

// Each of the two in PID, IPC, mount and user namespaces of its own.
TEST_F(Surroundings, EngineAndClientsInNamespacesOfTheirOwnWork) {
  const auto engine = engine_in(enter_namespaces, sleeping_);
  expect_to_work(*engine, enter_namespaces);
  if (IsSkipped()) return;
  // The first process of the namespace ends it, and with it the engine.
  RawClient admin(run_dir_ + "/engine.sock");
  EXPECT_EQ(code_of(admin.call("admin", {{"command", "stop"}})), "OK");
  EXPECT_EQ(engine->exit_status(), 0) << tests::read_file(directory_ / "log");
}

TEST_F(Surroundings, ADeathInAnotherNamespaceIsSeenThoughAChildHoldsTheSocket) {
  const auto engine = engine_in(enter_namespaces, sleeping_);
  if (!engine->problem().empty()) GTEST_SKIP() << "the kernel refuses " << engine->problem();
  int die[2];
  ASSERT_EQ(pipe2(die, O_CLOEXEC), 0);
  ProcessIn mortal(enter_namespaces, [&] {
    Result<Client> client = attached(run_dir_, "mortal");
    if (!client.ok()) return failed("attach", client.status());
    Result<Region> region = client->create_region(kBlocks * kBlockSize);
    if (!region.ok()) return failed("create_region", region.status());
    const auto layout = layout_of(*client, *region);
    fill_blocks(region->data, 7);
    // Lives on, until the namespace goes, and with the socket, though it does not know.
    if (fork() == 0) {
      while (true) pause();
    }
    const Status published = client->publish(*layout, Tier::kG2);
    if (!published.ok()) return failed("publish", published);
    char byte = 0;
    [[maybe_unused]] const ssize_t told = read(die[0], &byte, 1);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(mortal.problem(), "");
  ProcessIn finder(enter_nothing, [&] {
    Result<Client> client = attached(run_dir_, "finder");
    if (!client.ok()) return failed("attach", client.status());
    Result<Region> region = client->create_region(kBlocks * kBlockSize);
    if (!region.ok()) return failed("create_region", region.status());
    const auto own = layout_of(*client, *region);
    const auto found = client->find_layout("mortal", 0, Tier::kG2, deadline_in_ms(kHangMs));
    if (!found.ok()) return failed("find_layout", found.status());
    if (move_and_check(*client, found->handle, *own, region->data, 7) != 0) return 1;
    {
      // It has no number in the engine's namespace.
      RawClient admin(run_dir_ + "/engine.sock");
      const json answer = admin.call("admin", {{"command", "clients"}});
      for (const json& each : answer["clients"]) {
        if (each["instance"] == "mortal" && each["pid"] != 0) return failed("pid", {});
      }
    }
    [[maybe_unused]] const ssize_t said = write(die[1], "x", 1);
    // Its publications go once the engine has noticed.
    const BlockId block = 0;
    const uint64_t end = deadline_in_ms(kHangMs);
    while (monotonic_ns() < end) {
      auto request = client->execute_local_transfer(found->handle, *own, {&block, 1}, {&block, 1});
      if (!request.ok())
        return request.code() == Code::kStale ? 0 : failed("use", request.status());
      const Result<Completion> completion = request->wait(deadline_in_ms(kHangMs));
      if (!completion.ok()) return failed("waiting", completion.status());
      if (completion->status == Code::kStale) return 0;
      if (completion->status != Code::kOk) return failed("end", {completion->status, "use"});
    }
    return failed("the death is not seen", {Code::kTimedOut, "use"});
  });
  EXPECT_EQ(finder.exit_status(), 0);
  close(die[0]);
  close(die[1]);
}

TEST_F(Surroundings, ADevShmOfOneMebibyteIsEnough) {
  const auto engine = engine_in(enter_tiny_dev_shm, sleeping_);
  expect_to_work(*engine, [] {
    std::string problem = enter_tiny_dev_shm();
    struct statvfs room {};
    if (!problem.empty() || statvfs("/dev/shm", &room) != 0) return problem;
    return room.f_blocks * room.f_frsize == 1 << 20 ? std::string() : "a /dev/shm of another size";
  });
  expect_to_drain(*engine);
}

TEST_F(Surroundings, SixtyFourKibibytesOfLockedMemoryAreEnough) {
  const auto engine = engine_in(enter_little_locked_memory, sleeping_);
  expect_to_work(*engine, enter_little_locked_memory);
  expect_to_drain(*engine);
}

uint64_t effective_capabilities(pid_t pid) {
  const std::string status = tests::read_file("/proc/" + std::to_string(pid) + "/status");
  return std::stoull(status.substr(status.find("CapEff:") + 7), nullptr, 16);
}

TEST_F(Surroundings, NeitherIpcLockNorSysNiceIsNeededForAPinnedPoller) {
  const auto engine = engine_in(enter_without_capabilities,
                                R"({"pollers": [{"cpu": "offset:0", "idle": "adaptive"}]})");
  expect_to_work(*engine, enter_without_capabilities);
  if (!IsSkipped()) {
    constexpr uint64_t kTaken = uint64_t{1} << CAP_IPC_LOCK | uint64_t{1} << CAP_SYS_NICE;
    EXPECT_EQ(effective_capabilities(engine->pid()) & kTaken, 0u);
  }
  expect_to_drain(*engine);
}

// Beyond a group's limit the kernel kills: the library has to refuse first.
TEST_F(Surroundings, InASmallMemoryGroupWhatDoesNotFitIsRefusedNamingIt) {
  constexpr uint64_t kLimit = uint64_t{192} << 20;  // room for a sanitizer's tables
  const MemoryGroup group(kLimit);
  const Enter enter = [&] { return group.enter(); };
  const auto engine = engine_in(enter, sleeping_);
  expect_to_work(*engine, enter);
  if (IsSkipped()) return;
  ProcessIn greedy(enter, [&] {
    Result<Client> client = attached(run_dir_, "greedy");
    if (!client.ok()) return failed("attach", client.status());
    const Result<Region> region = client->create_region(kLimit);
    if (region.ok()) return failed("wanted a region refused, got it", {});
    const std::string text = region.status().to_string();
    return text.find(group.path()) == std::string::npos ? failed("create_region", region.status())
                                                        : 0;
  });
  EXPECT_EQ(greedy.exit_status(), 0);
  ProcessIn modest(enter, [this] { return use_engine(run_dir_); });
  EXPECT_EQ(modest.exit_status(), 0);
  expect_to_drain(*engine);
}

TEST_F(Surroundings, AReadOnlyRootWithATmpfsForTheRunDirectoryIsEnough) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a process with the sanitizer's thread cannot enter a mount namespace";
#endif
  const auto engine =
      engine_in([this] { return enter_read_only_root(directory_.path()); }, sleeping_);
  expect_to_work(*engine, [&] {
    std::string problem = enter_mounts_of(engine->pid());
    if (!problem.empty()) return problem;
    // Of the root itself: /tmp may be a mount of its own.
    constexpr const char* kPath = "/wherry-test-of-a-read-only-root";
    errno = 0;
    const bool can_write = open(kPath, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0;
    if (can_write) unlink(kPath);
    return can_write || errno != EROFS ? refused("a read-only root") : std::string();
  });
  expect_to_drain(*engine);
}

}  // namespace
}  // namespace wherry::test
