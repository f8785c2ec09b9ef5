// Registrar threads: long work does not hold up short work, failures undo what was done.
#include "engine/control/registrar.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <thread>

#include "engine/control/sigbus.h"
#include "engine/transport/local_transport.h"
#include "shm/doorbell.h"
#include "shm/segment.h"

namespace wherry::engine {
namespace {

constexpr uint64_t kPage = 4096;

// Counts what is registered; refuses on demand.
class CountingTransport : public LocalTransport {
 public:
  TransportId id() const override { return TransportId::kNull; }
  Availability available() const override { return {true, ""}; }
  std::string info() const override { return ""; }
  std::unique_ptr<Lane> make_lane(uint32_t) override { return nullptr; }
  Status register_mapping(const Mapping&) override {
    if (refuses) return {Code::kNoResources, "cannot pin"};
    ++registered;
    return {};
  }
  void release_mapping(const Mapping&) override { --registered; }

  std::atomic<int> registered{0};
  std::atomic<bool> refuses{false};
};

class RegistrarTest : public ::testing::Test {
 protected:
  void start(uint32_t threads, uint64_t piece_bytes) {
    eventfd_ = std::move(*shm::create_eventfd());
    RegistrarOptions options;
    options.threads = threads;
    options.piece_bytes = piece_bytes;
    options.transports = {&first_, &second_};
    options.result_eventfd = eventfd_.get();
    registrar_ = std::move(*Registrar::start(options));
  }

  std::shared_ptr<Mapping> map(uint64_t bytes, uint64_t owner = 1) {
    auto mapping = std::make_shared<Mapping>();
    mapping->length = bytes;
    mapping->writable = true;
    registrar_->map(owner, mapping, std::move(*shm::create_memory("registrar-test", bytes)));
    return mapping;
  }

  // Until the promise is kept, so that what is queued meanwhile begins together.
  std::shared_ptr<std::promise<void>> hold_the_only_thread() {
    auto gate = std::make_shared<std::promise<void>>();
    registrar_->run(
        1, [opened = gate->get_future().share()] { opened.wait(); }, [] {});
    return gate;
  }

  RegistrarResult next() {
    RegistrarResult result;
    while (!registrar_->take(&result)) {
      pollfd watched{eventfd_.get(), POLLIN, 0};
      EXPECT_EQ(poll(&watched, 1, 60'000), 1);
      uint64_t rung = 0;
      EXPECT_EQ(read(eventfd_.get(), &rung, sizeof(rung)), 8);
    }
    return result;
  }

  CountingTransport first_;
  CountingTransport second_;
  shm::UniqueFd eventfd_;
  std::unique_ptr<Registrar> registrar_;
};

TEST_F(RegistrarTest, AShortRegistrationOvertakesALongOneThatBeganBefore) {
  start(1, kPage);
  const auto open = hold_the_only_thread();
  const auto large = map(4096 * kPage);
  const auto small = map(kPage);
  open->set_value();
  EXPECT_EQ(next().kind, RegistrarResult::Kind::kRan);
  EXPECT_EQ(next().mapping, small);
  EXPECT_EQ(next().mapping, large);
  EXPECT_EQ(first_.registered, 2);
  EXPECT_EQ(second_.registered, 2);
}

TEST_F(RegistrarTest, ManyRegistrationsOfOneOwnerDoNotHoldUpTheOneOfAnother) {
  start(1, kPage);
  const auto open = hold_the_only_thread();
  for (int i = 0; i < 50; ++i) map(4 * kPage, 1);
  const auto other = map(4 * kPage, 2);
  open->set_value();
  EXPECT_EQ(next().kind, RegistrarResult::Kind::kRan);
  int before = 0;
  while (next().mapping != other) ++before;
  EXPECT_LE(before, 1);
}

TEST_F(RegistrarTest, WorkRunsElsewhereAndWhatIsToFollowComesBack) {
  start(2, kPage);
  std::thread::id worker;
  auto held = std::make_shared<int>(0);
  bool followed = false;
  registrar_->run(
      1, [&worker, held] { worker = std::this_thread::get_id(); }, [&] { followed = true; });
  const RegistrarResult result = next();
  EXPECT_EQ(result.kind, RegistrarResult::Kind::kRan);
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_EQ(held.use_count(), 1) << "what the work held was let go over there";
  EXPECT_FALSE(followed);
  result.done();
  EXPECT_TRUE(followed);
}

TEST_F(RegistrarTest, PagesLargerThanAPieceAreUnmappedToo) {
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  Result<shm::UniqueFd> memory = shm::create_memory("registrar-test", 2 * kHuge, kHuge);
  if (!memory.ok()) GTEST_SKIP() << "no huge pages: " << memory.status().to_string();
  start(1, kHuge / 2);
  auto mapping = std::make_shared<Mapping>();
  mapping->length = 2 * kHuge;
  mapping->writable = true;
  registrar_->map(1, mapping, std::move(*memory));
  ASSERT_TRUE(next().status.ok());
  std::byte* const base = mapping->base;
  registrar_->release(1, mapping);
  next();
  EXPECT_NE(msync(base, kHuge, MS_ASYNC), 0) << "still mapped";
}

TEST_F(RegistrarTest, UnmappingInPiecesIsOvertakenToo) {
  start(1, kPage);
  const auto large = map(4096 * kPage);
  next();
  std::byte* const base = large->base;
  registrar_->release(1, large);
  const auto small = map(kPage);
  EXPECT_EQ(next().mapping, small);
  const RegistrarResult released = next();
  EXPECT_EQ(released.kind, RegistrarResult::Kind::kReleased);
  EXPECT_EQ(released.mapping, large);
  EXPECT_EQ(first_.registered, 1);
  EXPECT_NE(msync(base, kPage, MS_ASYNC), 0) << "still mapped";
}

TEST_F(RegistrarTest, ATransportThatRefusesUndoesEverything) {
  start(2, kPage);
  second_.refuses = true;
  map(16 * kPage);
  const RegistrarResult result = next();
  EXPECT_EQ(result.status.code(), Code::kNoResources);
  EXPECT_EQ(result.status.message(), "cannot pin");
  EXPECT_EQ(result.mapping->base, nullptr);
  EXPECT_EQ(first_.registered, 0);
}

TEST_F(RegistrarTest, AllPagesArePresentAfterwardsAndLeftOutOfCoreDumps) {
  start(1, 4 * kPage);
  const auto mapping = map(64 * kPage);
  ASSERT_TRUE(next().status.ok());
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(mapping->base) << "-";
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  while (std::getline(smaps, line) && line.rfind(begin.str(), 0) != 0) {
  }
  std::string resident;
  std::string flags;
  while (std::getline(smaps, line) && flags.empty()) {
    if (line.rfind("Rss:", 0) == 0) resident = line;
    if (line.rfind("VmFlags:", 0) == 0) flags = line;
  }
  EXPECT_NE(resident.find(" 256 kB"), std::string::npos) << resident;
  EXPECT_NE(flags.find(" dd"), std::string::npos) << flags;
}

TEST_F(RegistrarTest, AnEndInTheMiddleOfThingsLeavesNothing) {
  start(2, kPage);
  const auto done = map(kPage);
  next();
  const auto under_way = map(4096 * kPage);
  registrar_->release(1, done);
  const auto not_taken = map(kPage);
  registrar_.reset();
  EXPECT_EQ(under_way->base, nullptr);
  EXPECT_EQ(not_taken->base, nullptr);
  EXPECT_EQ(done->base, nullptr);
  EXPECT_EQ(first_.registered, 0);
  EXPECT_EQ(second_.registered, 0);
}

}  // namespace
}  // namespace wherry::engine
