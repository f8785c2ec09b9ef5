// Bad input in requests: what is refused, with which code, and that the message names what is
// wrong.
#include <fcntl.h>
#include <unistd.h>

#include "clientlib/worker_transfers.h"
#include "tests/support/client_world.h"

namespace wherry::test {
namespace {

class BadRequest : public ClientWorld {
 protected:
  Status transfer(LayoutHandle from, LayoutHandle to, const std::vector<BlockId>& source,
                  const std::vector<BlockId>& destination, const TransferOptions& options = {}) {
    return outcome(client_.execute_local_transfer(from, to, source, destination, options));
  }
  Status with(const TransferOptions& options) {
    return transfer(a_.layout, b_.layout, {0}, {0}, options);
  }
  Status copy(const RangeOp& op) { return client_.submit(std::vector<RangeOp>{op}); }

  Client client_ = attach("solo");
  Placed a_ = place(client_, LayoutKind::kFullyContiguous);
  Placed b_ = place(client_, LayoutKind::kLayerSeparateBlockFirst);
};

TEST_F(BadRequest, LayoutPairsThatDoNotFitNameTheFieldAndBothValues) {
  const auto pair = [&](const std::string& field, const std::string& source,
                        const std::string& destination, const auto& change) {
    Geometry g = small_geometry();
    change(&g);
    const Placed other = place(client_, LayoutKind::kFullyContiguous, g);
    EXPECT_TRUE(says(transfer(a_.layout, other.layout, {0}, {0}), Code::kIncompatibleLayout,
                     {field, "source has " + source, "destination has " + destination}));
    EXPECT_TRUE(says(transfer(other.layout, a_.layout, {0}, {0}), Code::kIncompatibleLayout,
                     {field, "source has " + destination, "destination has " + source}));
  };
  pair("num_layers", "3", "2", [](Geometry* g) { g->num_layers = 2; });
  pair("outer_dim", "2", "1", [](Geometry* g) { g->outer_dim = 1; });
  pair("page_size", "4", "8", [](Geometry* g) { g->page_size = 8; });
  pair("inner_dim", "37", "36", [](Geometry* g) { g->inner_dim = 36; });
  pair("dtype", "u8", "i8", [](Geometry* g) { g->dtype = DType::kInt8; });
  pair("inner order", "unknown", "hnd", [](Geometry* g) { g->inner_order = InnerOrder::kHnd; });
  const LayoutHandle raw = *client_.register_layout(raw_list({{b_.region.handle, 0, 10}}));
  EXPECT_TRUE(says(transfer(a_.layout, raw, {0}, {0}), Code::kIncompatibleLayout,
                   {"block geometry", "source has some", "destination has none"}));
}

TEST_F(BadRequest, UnequalListsNameBothLengths) {
  EXPECT_TRUE(says(transfer(a_.layout, b_.layout, {0, 1, 2}, {0, 1}), Code::kInvalidArgument,
                   {"block lists", "3 source and 2 destination"}));
}

TEST_F(BadRequest, BlockIdsOutOfRangeNameSideIndexAndLimit) {
  EXPECT_TRUE(says(transfer(a_.layout, b_.layout, {0, 8}, {0, 1}), Code::kOutOfRange,
                   {"source block 1", "below 8", "got 8"}));
  EXPECT_TRUE(says(transfer(a_.layout, b_.layout, {0, 1, 2}, {0, 1, UINT32_MAX}), Code::kOutOfRange,
                   {"destination block 2", "below 8", "got 4294967295"}));
}

TEST_F(BadRequest, ADestinationTwiceIsNamed) {
  EXPECT_TRUE(says(transfer(a_.layout, b_.layout, {0, 1, 2, 3}, {5, 1, 7, 5}), Code::kOverlap,
                   {"destination block 3", "got 5 again"}));
  EXPECT_TRUE(says(transfer(a_.layout, a_.layout, {0, 1}, {2, 0}), Code::kOverlap,
                   {"source block 0", "got 0"}));
}

TEST_F(BadRequest, LayerRangesAreNamed) {
  const auto layers = [&](uint32_t begin, uint32_t end) {
    TransferOptions options;
    options.layer_begin = begin;
    options.layer_end = end;
    return with(options);
  };
  EXPECT_TRUE(layers(0, 3).ok());
  EXPECT_TRUE(says(layers(2, 2), Code::kOutOfRange, {"layer range", "<= 3", "2..2"})) << "empty";
  EXPECT_TRUE(says(layers(2, 1), Code::kOutOfRange, {"layer range", "2..1"})) << "reversed";
  EXPECT_TRUE(says(layers(3, 0), Code::kOutOfRange, {"layer range", "3..0"}));
  EXPECT_TRUE(says(layers(0, 4), Code::kOutOfRange, {"layer range", "0..4"}));
  // 16 bits travel: these must not come out as good ones.
  EXPECT_TRUE(says(layers(0, 65'537), Code::kOutOfRange, {"0..65537"}));
  EXPECT_TRUE(says(layers(65'537, 65'538), Code::kOutOfRange, {"65537..65538"}));
  EXPECT_TRUE(says(layers(UINT32_MAX, 1), Code::kOutOfRange, {"4294967295..1"}));
  const Placed list = place(client_, LayoutKind::kDescriptorList);
  const Placed other = place(client_, LayoutKind::kDescriptorList);
  TransferOptions some;
  some.layer_end = 1;
  EXPECT_TRUE(says(transfer(list.layout, other.layout, {0}, {0}, some), Code::kUnsupported,
                   {"layer range", "descriptor lists"}));
}

TEST_F(BadRequest, OptionsThatMakeNoSenseAreNamed) {
  TransferOptions options;
  options.head_slice = HeadSlice{0, 1};
  EXPECT_TRUE(says(with(options), Code::kUnsupported, {"head slice"}));
  options = {};
  options.deadline_ns = options.timeout_ns = 1;
  EXPECT_TRUE(says(with(options), Code::kInvalidArgument, {"deadline", "both"}));
  options = {};
  options.priority = static_cast<Priority>(7);
  EXPECT_TRUE(says(with(options), Code::kInvalidArgument, {"priority", "got 7"}));
  options = {};
  options.required_transport = static_cast<TransportKind>(77);
  EXPECT_TRUE(says(with(options), Code::kInvalidArgument, {"transport", "got 77"}));
  options.required_transport = TransportKind::kVerbs;
  EXPECT_TRUE(says(with(options), Code::kNoTransport, {"transports()"}));
  options.required_transport = TransportKind::kNull;
  EXPECT_TRUE(says(with(options), Code::kNoTransport, {}));
  options.required_transport = TransportKind::kMemory;
  EXPECT_TRUE(with(options).ok());
  options = {};
  options.checksum = true;
  EXPECT_TRUE(says(with(options), Code::kUnsupported, {"leave the option out"}));
  options = {};
  options.notification = std::string(1025, 'n');
  EXPECT_TRUE(says(with(options), Code::kInvalidArgument, {"notification", "1024", "got 1025"}));
  options.notification = "to whom?";
  EXPECT_TRUE(says(with(options), Code::kInvalidArgument, {})) << "both sides are its own";
  options = {};
  options.deadline_ns = monotonic_ns() - 1;
  EXPECT_TRUE(says(with(options), Code::kTimedOut, {"1 failed", "deadline"}));
  options.deadline_ns = kForever;
  EXPECT_TRUE(with(options).ok());
  options = {};
  options.timeout_ns = UINT64_MAX;
  EXPECT_TRUE(with(options).ok()) << "a time that does not fit is for ever";
}

TEST_F(BadRequest, NotificationsThatMakeNoSenseAreNamed) {
  Client other = attach("other");
  const ClientHandle target = *client_.find_client("other", 0);
  EXPECT_TRUE(says(outcome(client_.notify(target, "")), Code::kInvalidArgument,
                   {"notification", "at least 1 byte"}));
  EXPECT_TRUE(says(outcome(client_.notify(target, std::string(1025, 'n'))), Code::kInvalidArgument,
                   {"at most 1024", "got 1025"}));
  EXPECT_TRUE(outcome(client_.notify(target, std::string(1024, 'n'))).ok());
  TransferOptions options;
  options.layer_end = 1;
  EXPECT_TRUE(says(outcome(client_.notify(target, "x", options)), Code::kUnsupported, {"layers"}));
  EXPECT_TRUE(
      says(outcome(client_.notify("nobody", 3, "x")), Code::kUnknownInstance, {"nobody/3"}));
  EXPECT_TRUE(says(outcome(client_.notify({a_.layout.value}, "x")), Code::kInvalidArgument,
                   {"client handle", std::to_string(a_.layout.value)}));
  EXPECT_TRUE(says(client_.open_channel()->poll_notifications().status(), Code::kInvalidArgument,
                   {"first channel"}));
  Status elsewhere;
  std::thread([&] { elsewhere = client_.poll_notifications().status(); }).join();
  EXPECT_TRUE(says(elsewhere, Code::kInvalidArgument, {"thread"}));
}

TEST_F(BadRequest, RangesOutOfRangeAreNamedAlsoNear2To64) {
  const RegionHandle region = a_.region.handle;
  const std::string size = std::to_string(a_.region.bytes);
  const auto range = [&](uint64_t from, uint64_t to, uint64_t length) {
    return copy({region, from, b_.region.handle, to, length});
  };
  EXPECT_TRUE(says(range(0, 0, 0), Code::kInvalidArgument, {"op 0", "length", "got 0"}));
  EXPECT_TRUE(says(range(a_.region.bytes - 9, 0, 10), Code::kOutOfRange,
                   {"op 0", "source range", size, "10 bytes at"}));
  EXPECT_TRUE(says(range(0, b_.region.bytes, 1), Code::kOutOfRange, {"destination range"}));
  EXPECT_TRUE(says(range(UINT64_MAX, 0, 2), Code::kOutOfRange, {"18446744073709551615"}));
  EXPECT_TRUE(says(range(UINT64_MAX - 1, UINT64_MAX - 1, 2), Code::kOutOfRange, {"source range"}));
  EXPECT_TRUE(says(range(10, 0, UINT64_MAX - 5), Code::kOutOfRange, {"source range"}));
  EXPECT_TRUE(says(range(0, 0, uint64_t{1} << 32), Code::kOutOfRange, {"4294967296 bytes at 0"}));
  EXPECT_TRUE(says(copy({region, 0, region, 5, 10}), Code::kOverlap, {"op 0", "from 0 to 5"}));
  EXPECT_TRUE(says(copy({region, 5, region, 5, 10}), Code::kOverlap, {"op 0"}));
  EXPECT_TRUE(copy({region, 0, region, 10, 10}).ok());
  TransferOptions options;
  options.layer_end = 1;
  Channel channel = *client_.channel();
  EXPECT_TRUE(says(outcome(channel.copy_range({region, 0, region, 10, 10}, options)),
                   Code::kUnsupported, {"byte range", "layers"}));
}

TEST_F(BadRequest, OffsetsBeyond2To32FindTheirBytes) {
  // The same 64 MiB again and again: nothing but the offsets is large.
  constexpr uint64_t kPart = uint64_t{64} << 20;
  constexpr uint32_t kParts = 70;
  Region region = make_region(client_, kPart);
  std::memset(region.data, 1, kPart);
  std::memset(region.data + 1000, 2, 100);
  std::memset(region.data + kPart - 50, 3, 50);
  const LayoutHandle list = *client_.register_layout(
      raw_list(std::vector<LayoutPart>(kParts, {region.handle, 0, kPart})));
  constexpr uint64_t kFar = uint64_t{66} * kPart;  // 2^32 is 64 parts
  ASSERT_TRUE(copy({list, kFar + 1000, b_.region.handle, 0, 100}).ok());
  EXPECT_EQ(b_.region.data[0], std::byte{2});
  EXPECT_EQ(b_.region.data[99], std::byte{2});
  // Over the end of a part, which is exactly at 2^32.
  ASSERT_TRUE(copy({list, (uint64_t{1} << 32) - 50, b_.region.handle, 0, 100}).ok());
  EXPECT_EQ(b_.region.data[49], std::byte{3});
  EXPECT_EQ(b_.region.data[50], std::byte{1});
  EXPECT_TRUE(says(copy({list, kParts * kPart - 99, b_.region.handle, 0, 100}), Code::kOutOfRange,
                   {std::to_string(kParts * kPart)}));
  EXPECT_TRUE(says(copy({b_.region.handle, 0, list, 0, 10}), Code::kOverlap, {"op 0"}))
      << "a list that names bytes twice is a source only";
}

TEST_F(BadRequest, StaleHandlesSaySoAndNameThemselves) {
  const auto stale = [&](LayoutHandle handle, const std::string& text) {
    EXPECT_TRUE(says(transfer(handle, b_.layout, {0}, {0}), Code::kStale, {"source handle", text}));
    EXPECT_TRUE(
        says(transfer(b_.layout, handle, {0}, {0}), Code::kStale, {"destination handle", text}));
    EXPECT_TRUE(says(copy({handle, 0, b_.region.handle, 0, 1}), Code::kStale, {"op 0", text}));
    EXPECT_EQ(client_.publish(handle, Tier::kG1).code(), Code::kStale);
    EXPECT_EQ(client_.unpublish(handle).code(), Code::kStale);
  };
  stale({0}, "got 0");
  stale({123'456'789}, "123456789");
  stale({UINT64_MAX}, "18446744073709551615");
  ASSERT_TRUE(client_.free_layout(a_.layout).ok());
  stale(a_.layout, std::to_string(a_.layout.value));
  EXPECT_TRUE(says(client_.free_layout(a_.layout), Code::kStale, {"free layout"}));
  ASSERT_TRUE(client_.free_region(a_.region.handle).ok());
  EXPECT_TRUE(says(client_.free_region(a_.region.handle), Code::kStale, {"free region"}));
  EXPECT_TRUE(says(copy({a_.region.handle, 0, b_.region.handle, 0, 1}), Code::kStale, {"source"}));
  EXPECT_TRUE(says(client_.register_layout(a_.spec).status(), Code::kStale,
                   {"layout part", std::to_string(a_.region.handle.value)}));
  // Another thing in the same place does not make the old handle good again.
  const Placed next = place(client_, LayoutKind::kFullyContiguous);
  stale(a_.layout, std::to_string(a_.layout.value));
  EXPECT_TRUE(transfer(next.layout, b_.layout, {0}, {0}).ok());
  // Good handles of the wrong kind are something else.
  EXPECT_TRUE(says(transfer({next.region.handle.value}, b_.layout, {0}, {0}),
                   Code::kInvalidArgument, {"source handle", "a layout"}));
}

TEST_F(BadRequest, AFoundLayoutIsStaleOnceItsOwnerHasTakenItBackOrIsGone) {
  LayoutHandle taken_back;
  LayoutHandle of_the_gone;
  ClientHandle gone;
  {
    Client owner = attach("owner");
    const Placed first = place(owner, LayoutKind::kFullyContiguous);
    const Placed second = place(owner, LayoutKind::kFullyContiguous);
    ASSERT_TRUE(owner.publish(first.layout, Tier::kG1).ok());
    ASSERT_TRUE(owner.publish(second.layout, Tier::kG2).ok());
    taken_back = client_.find_layout("owner", 0, Tier::kG1)->handle;
    of_the_gone = client_.find_layout("owner", 0, Tier::kG2)->handle;
    gone = *client_.find_client("owner", 0);
    EXPECT_TRUE(transfer(taken_back, b_.layout, {0}, {0}).ok());
    ASSERT_TRUE(owner.unpublish(first.layout).ok());
    EXPECT_TRUE(says(transfer(taken_back, b_.layout, {0}, {0}), Code::kStale, {"find"}));
    EXPECT_TRUE(says(owner.unpublish(first.layout), Code::kInvalidArgument, {"not"}));
  }
  EXPECT_TRUE(says(transfer(of_the_gone, b_.layout, {0}, {0}), Code::kStale, {"find"}));
  EXPECT_TRUE(says(outcome(client_.notify(gone, "x")), Code::kStale, {"find"}));
  EXPECT_TRUE(says(client_.find_layout("owner", 0, Tier::kG2).status(), Code::kUnknownInstance,
                   {"owner/0", "G2"}));
  EXPECT_TRUE(client_.free_layout(of_the_gone).ok());
  // By name it is another client that is reached.
  Client again = attach("owner");
  EXPECT_TRUE(outcome(client_.notify("owner", 0, "x")).ok());
}

TEST_F(BadRequest, ALayoutIsUsedOnlyByThoseItIsPublishedToAndWithinTheRights) {
  Client owner = attach("owner");
  const Placed placed = place(owner, LayoutKind::kFullyContiguous);
  ASSERT_TRUE(owner.publish(placed.layout, Tier::kG1, Rights::kReadWrite, {"friend"}).ok());
  ASSERT_TRUE(owner.publish(placed.layout, Tier::kG2, Rights::kRead).ok());
  EXPECT_TRUE(says(client_.find_layout("owner", 0, Tier::kG1).status(), Code::kNotPermitted,
                   {"owner/0", "solo", "published to others"}));
  const FoundLayout found = *client_.find_layout("owner", 0, Tier::kG2);
  EXPECT_TRUE(says(transfer(b_.layout, found.handle, {0}, {0}), Code::kNotPermitted,
                   {"destination layout", "reading only", "kReadWrite"}));
  EXPECT_TRUE(says(copy({b_.region.handle, 0, found.handle, 0, 1}), Code::kNotPermitted,
                   {"op 0", "reading only"}));
  EXPECT_TRUE(transfer(found.handle, b_.layout, {0}, {0}).ok());
  // Neither is it the finder's to publish or to build upon.
  EXPECT_EQ(client_.publish(found.handle, Tier::kG1).code(), Code::kStale);
  EXPECT_EQ(client_.free_region({found.handle.value}).code(), Code::kStale);
  // Another client's numbers mean nothing here.
  EXPECT_NE(transfer({placed.layout.value}, b_.layout, {0}, {0}).code(), Code::kInternal);
}

TEST_F(BadRequest, ABatchNamesEveryBadOpAndDoesNoneOfThem) {
  const RegionHandle region = a_.region.handle;
  const RangeOp good{region, 0, b_.region.handle, 0, 61};
  const RangeOp far{region, UINT64_MAX, b_.region.handle, 0, 1};
  const RangeOp none{region, 0, b_.region.handle, 0, 0};
  std::memset(a_.region.data, 0, 61);
  const Image untouched(b_);
  const Status status = client_.submit(std::vector<RangeOp>{far, good, none, good});
  EXPECT_TRUE(
      says(status, Code::kOutOfRange,
           {"4 ops", "2 that did not", "\nop 0: OUT_OF_RANGE", "\nop 2: INVALID_ARGUMENT"}));
  EXPECT_EQ(status.message().find("op 1"), std::string::npos);
  EXPECT_TRUE(untouched.holds());
}

TEST_F(BadRequest, AWorkerNamesTheTierThatIsWrong) {
  DirectWorker worker(client_);
  ASSERT_TRUE(worker.bind(Tier::kG2, a_.layout).ok());
  EXPECT_TRUE(says(worker.bind(Tier::kG2, b_.layout), Code::kAlreadyExists, {"G2"}));
  EXPECT_TRUE(says(worker.bind(Tier::kG4, b_.layout), Code::kUnsupported, {"G4"}));
  EXPECT_TRUE(says(worker.bind(static_cast<Tier>(0), b_.layout), Code::kInvalidArgument, {"bind"}));
  EXPECT_TRUE(says(worker.bind(static_cast<Tier>(9), b_.layout), Code::kInvalidArgument, {"9"}));
  EXPECT_TRUE(says(worker.bind(Tier::kG1, {0}), Code::kInvalidArgument, {"handle 0"}));
  const std::vector<BlockId> one = {0};
  const auto local = [&](Tier from, Tier to) {
    return worker.execute_local_transfer(from, to, one, one, {}).status();
  };
  EXPECT_TRUE(says(local(Tier::kG2, Tier::kG1), Code::kInvalidArgument, {"destination", "G1"}));
  EXPECT_TRUE(says(local(Tier::kG3, Tier::kG2), Code::kInvalidArgument, {"source", "G3"}));
  EXPECT_TRUE(says(local(Tier::kG4, Tier::kG2), Code::kUnsupported, {"G4"}));
  EXPECT_TRUE(says(local(Tier::kG2, Tier::kG4), Code::kUnsupported, {"G4"}));
  const RemoteDescriptor remote = RemoteObjects{{1}};
  EXPECT_TRUE(says(worker.execute_remote_onboard(remote, Tier::kG2, one, {}).status(),
                   Code::kUnsupported, {"execute_remote_onboard"}));
  EXPECT_TRUE(says(worker.execute_remote_offload(Tier::kG2, one, remote, {}).status(),
                   Code::kUnsupported, {"execute_remote_offload"}));
  EXPECT_TRUE(
      says(worker.connect_remote("peer", {}).status(), Code::kUnsupported, {"connect_remote"}));
  EXPECT_FALSE(worker.has_remote_metadata("peer"));
}

// One memory under several names: only the engine can see that.
class Overlap : public BadRequest {
 protected:
  static constexpr uint64_t kBytes = 1 << 16;

  Placed over(Client& client, uint64_t file_offset, uint64_t offset,
              LayoutKind kind = LayoutKind::kFullyContiguous) {
    Placed placed;
    placed.region = *client.register_region(memory_.get(), file_offset, kBytes - file_offset, true);
    Geometry g = small_geometry();
    g.kind = kind;
    const bool separate = kind == LayoutKind::kLayerSeparateBlockFirst;
    placed.spec = separate ? layer_separate(placed.region.handle, offset, g)
                           : fully_contiguous(placed.region.handle, offset, g);
    Result<LayoutHandle> layout = client.register_layout(placed.spec);
    EXPECT_TRUE(layout.ok()) << layout.status().to_string();
    placed.layout = *layout;
    return placed;
  }

  shm::UniqueFd memory_ = sealed_memory(kBytes);
};

TEST_F(Overlap, TwoLayoutsInOneRegion) {
  const LayoutHandle twin = *client_.register_layout(a_.spec);
  EXPECT_TRUE(says(transfer(a_.layout, twin, {0, 2}, {1, 2}), Code::kOverlap,
                   {"first block 1", "share bytes"}));
  EXPECT_TRUE(transfer(a_.layout, twin, {0, 2}, {1, 3}).ok()) << "these blocks lie apart";
}

TEST_F(Overlap, ASecondRegistrationOfTheSameMemory) {
  const Placed one = over(client_, 0, 4096);
  const Placed two = over(client_, 4096, 0);  // the same bytes
  EXPECT_TRUE(
      says(transfer(one.layout, two.layout, {3, 0}, {4, 0}), Code::kOverlap, {"first block 1"}));
  one.fill_all(1);
  Image after(two);
  after.block(4, 3, 1);
  EXPECT_TRUE(transfer(one.layout, two.layout, {3}, {4}).ok());
  EXPECT_TRUE(after.holds());
  EXPECT_TRUE(
      says(copy({one.region.handle, 4096, two.region.handle, 5, 10}), Code::kOverlap, {"op 0"}));
  EXPECT_TRUE(copy({one.region.handle, 4096, two.region.handle, 10, 10}).ok());
}

TEST_F(Overlap, ByAnotherClientsRegistrationOfTheSameMemory) {
  Client other = attach("other");
  const Placed theirs = over(other, 4096, 100);
  const Placed mine = over(client_, 0, 4196);
  ASSERT_TRUE(other.publish(theirs.layout, Tier::kG2, Rights::kReadWrite).ok());
  const LayoutHandle found = client_.find_layout("other", 0, Tier::kG2)->handle;
  EXPECT_TRUE(says(transfer(mine.layout, found, {7}, {7}), Code::kOverlap, {"first block 0"}));
  EXPECT_TRUE(says(transfer(found, mine.layout, {7}, {7}), Code::kOverlap, {"first block 0"}));
  EXPECT_TRUE(transfer(found, mine.layout, {7}, {6}).ok());
}

TEST_F(Overlap, OfBlocksThatMeetOnlyInPart) {
  const uint64_t block = small_geometry().block_bytes();
  const Placed one = over(client_, 0, 0);
  const Placed shifted = over(client_, 0, block / 2);  // its block 0 meets blocks 0 and 1
  EXPECT_TRUE(says(transfer(one.layout, shifted.layout, {1}, {0}), Code::kOverlap, {}));
  EXPECT_TRUE(says(transfer(one.layout, shifted.layout, {2, 0}, {4, 0}), Code::kOverlap,
                   {"first block 1"}));
  EXPECT_TRUE(transfer(one.layout, shifted.layout, {2}, {0}).ok());
  const Placed layers = over(client_, 0, 0, LayoutKind::kLayerSeparateBlockFirst);
  EXPECT_TRUE(says(transfer(one.layout, layers.layout, {0}, {0}), Code::kOverlap, {}));
}

}  // namespace
}  // namespace wherry::test
