// Bad input in what is registered, published and attached: regions, layouts, limits, names.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "tests/support/client_world.h"

namespace wherry::test {
namespace {

constexpr uint64_t kPage = 4096;

class BadMemory : public ClientWorld {
 protected:
  explicit BadMemory(const std::function<void(engine::Config*)>& change = {})
      : ClientWorld(change) {}

  // A memfd as long as wanted, without pages.
  static shm::UniqueFd empty_memory(uint64_t bytes, int seals) {
    shm::UniqueFd fd(memfd_create("wherry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  }
  // Both ways to give a descriptor.
  ::testing::AssertionResult refuses(int fd, uint64_t offset, uint64_t bytes, Code code,
                                     const std::vector<std::string>& texts) {
    const auto plain = says(client_.register_region(fd, offset, bytes).status(), code, texts);
    return plain ? says(client_.register_region(fd, offset, bytes, true).status(), code, texts)
                 : plain;
  }
  Status layout(const LayoutSpec& spec) { return client_.register_layout(spec).status(); }

  Client client_ = attach("solo");
};

TEST_F(BadMemory, ARegionsDescriptorHasToBeASealedMemfdWithAllItsPages) {
  const shm::UniqueFd good = sealed_memory(4 * kPage);
  EXPECT_TRUE(refuses(-1, 0, kPage, Code::kInvalidArgument, {"region", "open descriptor"}));
  const tests::TemporaryDirectory directory;
  const shm::UniqueFd file(open((directory / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_TRUE(refuses(file.get(), 0, kPage, Code::kInvalidArgument, {"wanted a memfd"}));
  const shm::UniqueFd unsealed(memfd_create("wherry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kPage), 0);
  EXPECT_TRUE(refuses(unsealed.get(), 0, kPage, Code::kInvalidArgument, {"F_SEAL_SHRINK"}));
  const shm::UniqueFd unbacked = empty_memory(4 * kPage, F_SEAL_SHRINK);
  EXPECT_TRUE(refuses(unbacked.get(), 0, 4 * kPage, Code::kInvalidArgument,
                      {"pages", "0 of 16384 bytes", "fallocate"}));
  const shm::UniqueFd write_only(
      open(("/proc/self/fd/" + std::to_string(good.get())).c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_TRUE(refuses(write_only.get(), 0, kPage, Code::kInvalidArgument, {"for reading"}));
  EXPECT_TRUE(client_.register_region(good.get(), 0, 4 * kPage, true).ok());
}

TEST_F(BadMemory, ARegionsRangeHasToBeWholePagesInsideTheFile) {
  const shm::UniqueFd memory = sealed_memory(4 * kPage);
  const int fd = memory.get();
  EXPECT_TRUE(refuses(fd, 0, 0, Code::kInvalidArgument, {"length", "got 0"}));
  EXPECT_TRUE(refuses(fd, 100, kPage, Code::kInvalidArgument, {"whole pages of 4096", "100"}));
  EXPECT_TRUE(refuses(fd, 0, 100, Code::kInvalidArgument, {"whole pages of 4096", "100"}));
  EXPECT_TRUE(refuses(fd, kPage, 4 * kPage, Code::kOutOfRange, {"16384 bytes", "offset 4096"}));
  EXPECT_TRUE(refuses(fd, 0, uint64_t{1} << 32, Code::kOutOfRange, {"4294967296"}));
  const uint64_t last_page = UINT64_MAX - kPage + 1;
  EXPECT_TRUE(refuses(fd, last_page, kPage, Code::kOutOfRange, {std::to_string(last_page)}));
  EXPECT_TRUE(refuses(fd, last_page, last_page, Code::kOutOfRange, {std::to_string(last_page)}));
  EXPECT_TRUE(refuses(fd, kPage, last_page, Code::kOutOfRange, {std::to_string(last_page)}));
}

TEST_F(BadMemory, MemoryThatCannotBeHadIsRefusedBeforeItIsAllocated) {
  EXPECT_TRUE(says(client_.create_region(0).status(), Code::kInvalidArgument,
                   {"at least one byte", "got 0"}));
  EXPECT_TRUE(says(client_.create_region(UINT64_MAX).status(), Code::kInvalidArgument, {}));
  EXPECT_TRUE(says(client_.create_region(kPage, 12'345).status(), Code::kInvalidArgument,
                   {"pages of 12345"}));
  // Should the refusal fail, the limit keeps the machine from running out of memory.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{uint64_t{1} << 30, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_TRUE(says(client_.create_region(uint64_t{1} << 44).status(), Code::kNoResources,
                   {"17592186044416"}));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
}

TEST_F(BadMemory, OnlyMemoryThatOwnsItsPagesIsAdopted) {
  const auto refuses_to_adopt = [&](void* address, uint64_t bytes, bool own,
                                    const std::string& text) {
    return says(client_.adopt_region(address, bytes, {own}).status(), Code::kInvalidArgument,
                {"adopt", text});
  };
  int on_the_stack = 0;
  EXPECT_TRUE(refuses_to_adopt(nullptr, kPage, true, "address"));
  EXPECT_TRUE(refuses_to_adopt(&on_the_stack, 0, true, "0 bytes"));
  EXPECT_TRUE(refuses_to_adopt(&on_the_stack, 4, true, "whole pages"));
  const std::vector<std::byte> small(1000);
  EXPECT_TRUE(refuses_to_adopt(const_cast<std::byte*>(small.data()), small.size(), false, ""));
  const auto mapping = [](int protection, int flags, int fd) {
    return mmap(nullptr, 2 * kPage, protection, flags, fd, 0);
  };
  void* shared = mapping(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
  EXPECT_TRUE(refuses_to_adopt(shared, 2 * kPage, true, "shared"));
  munmap(shared, 2 * kPage);
  void* read_only = mapping(PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  EXPECT_TRUE(refuses_to_adopt(read_only, 2 * kPage, true, "mprotect"));
  munmap(read_only, 2 * kPage);
  const tests::TemporaryDirectory directory;
  tests::write_file(directory / "file", std::string(2 * kPage, 'x'));
  const shm::UniqueFd file(open((directory / "file").c_str(), O_RDWR | O_CLOEXEC));
  void* of_a_file = mapping(PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get());
  EXPECT_TRUE(refuses_to_adopt(of_a_file, 2 * kPage, true, "file"));
  munmap(of_a_file, 2 * kPage);
  void* own = mapping(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  munmap(static_cast<std::byte*>(own) + kPage, kPage);
  EXPECT_TRUE(refuses_to_adopt(own, 2 * kPage, true, "hole"));
  const Result<Region> region = client_.adopt_region(own, kPage, {true});
  ASSERT_TRUE(region.ok()) << region.status().to_string();
  EXPECT_TRUE(refuses_to_adopt(own, kPage, true, "adopted already"));
  munmap(own, kPage);
}

TEST_F(BadMemory, ALayoutsPartsHaveToFitItsGeometryAndItsRegions) {
  const Placed placed = place(client_, LayoutKind::kLayerSeparateBlockFirst);
  const LayoutSpec& good = placed.spec;
  LayoutSpec spec = good;
  spec.parts.pop_back();
  EXPECT_TRUE(says(layout(spec), Code::kInvalidArgument, {"layout parts", "wanted 3", "got 2"}));
  spec = good;
  --spec.parts[1].length;
  EXPECT_TRUE(says(layout(spec), Code::kInvalidArgument,
                   {"layout part 1", std::to_string(spec.parts[1].length)}));
  spec = good;
  spec.parts[2].offset = placed.region.bytes - spec.parts[2].length + 1;
  EXPECT_TRUE(says(layout(spec), Code::kOutOfRange,
                   {"layout part 2", std::to_string(placed.region.bytes)}));
  spec = good;
  spec.parts[0].offset = UINT64_MAX - 5;
  EXPECT_TRUE(says(layout(spec), Code::kOutOfRange, {"layout part 0", "18446744073709551610"}));
  spec = good;
  spec.parts[1].offset = spec.parts[0].offset + 1;
  EXPECT_TRUE(says(layout(spec), Code::kOverlap, {"layout parts", "share bytes"}));
  spec = good;
  spec.parts[1].region = {987'654'321};
  EXPECT_TRUE(says(layout(spec), Code::kStale, {"layout part", "987654321"}));
  spec.parts[1].region = {placed.layout.value};
  EXPECT_TRUE(
      says(layout(spec), Code::kStale, {"layout part", std::to_string(placed.layout.value)}));
  spec = raw_list({{placed.region.handle, 0, 10}, {placed.region.handle, 10, 0}});
  EXPECT_TRUE(says(layout(spec), Code::kInvalidArgument, {"layout part 1", "at least 1"}));
  spec = raw_list({{placed.region.handle, 0, UINT64_MAX}});
  EXPECT_TRUE(says(layout(spec), Code::kOutOfRange, {"layout part 0", "18446744073709551615"}));
  spec = raw_list({{placed.region.handle, 10, UINT64_MAX - 9}});
  EXPECT_TRUE(says(layout(spec), Code::kOutOfRange, {"layout part 0", "18446744073709551606"}));
}

TEST_F(BadMemory, AGeometryHasToMakeSenseAlsoAt2To32AndNear2To64) {
  const Region region = make_region(client_, kPage);
  const auto geometry = [&](const auto& change) {
    Geometry g = small_geometry();
    change(&g);
    return layout(fully_contiguous(region.handle, 0, g));
  };
  const auto names = [&](const std::vector<std::string>& texts, const auto& change) {
    EXPECT_TRUE(says(geometry(change), Code::kInvalidArgument, texts));
  };
  names({"num_blocks", "got 0"}, [](Geometry* g) { g->num_blocks = 0; });
  names({"num_blocks", "got 2147483648"}, [](Geometry* g) { g->num_blocks = 1u << 31; });
  names({"num_blocks", "got 4294967295"}, [](Geometry* g) { g->num_blocks = UINT32_MAX; });
  names({"num_layers", "got 4097"}, [](Geometry* g) { g->num_layers = 4097; });
  names({"num_layers", "got 0"}, [](Geometry* g) { g->num_layers = 0; });
  names({"outer_dim", "got 3"}, [](Geometry* g) { g->outer_dim = 3; });
  names({"page_size", "got 0"}, [](Geometry* g) { g->page_size = 0; });
  names({"inner_dim", "got 0"}, [](Geometry* g) { g->inner_dim = 0; });
  names({"dtype", "got 99"}, [](Geometry* g) { g->dtype = static_cast<DType>(99); });
  names({"inner_order", "got 9"}, [](Geometry* g) { g->inner_order = static_cast<InnerOrder>(9); });
  names({"layout size", "2^64"}, [](Geometry* g) {
    g->page_size = UINT32_MAX;
    g->inner_dim = UINT32_MAX;
  });
  // A block of 4 GiB, and a layout of nearly 2^64 bytes: right in themselves, but not in a page.
  const auto too_large = [&](const std::string& text, const auto& change) {
    EXPECT_TRUE(says(geometry(change), Code::kOutOfRange, {"layout part 0", "4096 bytes", text}));
  };
  too_large("4294967296", [](Geometry* g) {
    *g = {LayoutKind::kFullyContiguous,
          InnerOrder::kUnknown,
          DType::kUint8,
          1,
          1,
          1,
          1 << 16,
          1 << 16};
  });
  too_large("18446744065119617025", [](Geometry* g) {
    *g = {LayoutKind::kFullyContiguous,
          InnerOrder::kUnknown,
          DType::kUint8,
          1,
          1,
          1,
          UINT32_MAX,
          UINT32_MAX};
  });
  Geometry universal = small_geometry();
  universal.inner_order = InnerOrder::kUniversal;
  EXPECT_TRUE(says(layout(layer_separate(region.handle, 0, universal)), Code::kInvalidArgument,
                   {"inner_order", "universal"}));
}

TEST_F(BadMemory, WhatIsInUseOrTakenIsNamed) {
  const Placed placed = place(client_, LayoutKind::kFullyContiguous);
  EXPECT_TRUE(says(client_.free_region(placed.region.handle), Code::kNotPermitted,
                   {"free region", "layout " + std::to_string(placed.layout.value)}));
  ASSERT_TRUE(client_.publish(placed.layout, Tier::kG2).ok());
  EXPECT_TRUE(
      says(client_.publish(placed.layout, Tier::kG2), Code::kAlreadyExists, {"solo/0", "G2"}));
  EXPECT_TRUE(
      says(client_.publish(placed.layout, static_cast<Tier>(0)), Code::kInvalidArgument, {"tier"}));
  EXPECT_TRUE(says(client_.publish(placed.layout, Tier::kG1, Rights::kRead, {"not good"}),
                   Code::kInvalidArgument, {"not good"}));
  EXPECT_TRUE(says(client_.unpublish({placed.region.handle.value}), Code::kStale, {"unpublish"}));
}

TEST_F(BadMemory, ReadOnlyMemoryIsNeitherADestinationNorPublishedAsOne) {
  const shm::UniqueFd memory = sealed_memory(1 << 16);
  const shm::UniqueFd read_only(
      open(("/proc/self/fd/" + std::to_string(memory.get())).c_str(), O_RDONLY | O_CLOEXEC));
  const Region region = *client_.register_region(read_only.get(), 0, 1 << 16, true);
  EXPECT_FALSE(region.writable);
  EXPECT_NE(region.data, nullptr);
  const Region other = make_region(client_, 1 << 16);
  EXPECT_TRUE(client_.submit(std::vector<RangeOp>{{region.handle, 0, other.handle, 0, 100}}).ok());
  EXPECT_TRUE(says(client_.submit(std::vector<RangeOp>{{other.handle, 0, region.handle, 0, 100}}),
                   Code::kNotPermitted, {"op 0", "reading only"}));
  const LayoutHandle layout =
      *client_.register_layout(fully_contiguous(region.handle, 0, small_geometry()));
  EXPECT_TRUE(says(client_.publish(layout, Tier::kG2, Rights::kReadWrite), Code::kNotPermitted,
                   {"read_write", "reading only"}));
  EXPECT_TRUE(client_.publish(layout, Tier::kG2, Rights::kRead).ok());
  // A seal takes the right away as well; the library's mapping then has to be one for reading.
  const shm::UniqueFd sealed(memfd_create("wherry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(posix_fallocate(sealed.get(), 0, kPage), 0);
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  const Result<Region> frozen = client_.register_region(sealed.get(), 0, kPage, true);
  ASSERT_TRUE(frozen.ok()) << frozen.status().to_string();
  EXPECT_FALSE(frozen->writable);
}

TEST_F(BadMemory, NamesThatAreBadOrTakenAreToldAndWhereTheEngineWasLookedFor) {
  const auto attach_as = [&](const std::string& instance, uint32_t rank) {
    AttachOptions options;
    options.instance = instance;
    options.rank = rank;
    options.run_dir = engine_->run_dir();
    options.wait_ms = 0;
    return Client::attach(options).status();
  };
  EXPECT_TRUE(says(attach_as("solo", 0), Code::kAlreadyExists,
                   {"solo/0", "pid " + std::to_string(getpid())}));
  EXPECT_TRUE(attach_as("solo", 1).ok());
  EXPECT_TRUE(says(attach_as("", 0), Code::kInvalidArgument, {"instance"}));
  EXPECT_TRUE(says(attach_as("white space", 0), Code::kInvalidArgument, {"instance", "white"}));
  EXPECT_TRUE(says(attach_as(std::string(65, 'x'), 0), Code::kInvalidArgument, {"instance"}));
  EXPECT_TRUE(attach_as(std::string(64, 'x'), 0).ok());
  AttachOptions options;
  options.instance = "solo";
  options.wait_ms = 0;
  options.run_dir = engine_->run_dir() + "/nothing";
  EXPECT_TRUE(says(Client::attach(options).status(), Code::kUnreachable, {options.run_dir}));
  options.run_dir = "/" + std::string(200, 'x');
  EXPECT_TRUE(
      says(Client::attach(options).status(), Code::kInvalidArgument, {"socket path", "107"}));
}

TEST_F(BadMemory, ChannelsOfAnOddSizeAreRefused) {
  const auto slots = [&](uint32_t count) {
    ChannelOptions options;
    options.submission_slots = count;
    return client_.open_channel(options).status();
  };
  EXPECT_TRUE(says(slots(7), Code::kInvalidArgument, {"submission", "power of two", "7"}));
  EXPECT_TRUE(says(slots(24), Code::kInvalidArgument, {"submission", "24"}));
  EXPECT_EQ(slots(4).code(), Code::kInvalidArgument);
  EXPECT_TRUE(says(slots(1 << 16), Code::kNoResources, {"submission_slots", "8192", "65536"}));
  EXPECT_TRUE(slots(8).ok());
}

class Limits : public BadMemory {
 protected:
  Limits()
      : BadMemory([](engine::Config* config) {
          config->limits.registered_bytes_per_client = 8 * kPage;
          config->limits.regions_per_client = 3;
          config->limits.layouts_per_client = 2;
          config->limits.found_per_client = 1;
          config->limits.channels_per_client = 2;
          config->limits.clients = 2;
        }) {}
};

TEST_F(Limits, EachNamesItsKeyItsValueAndTheUse) {
  const Region region = make_region(client_, 6 * kPage);
  EXPECT_TRUE(says(client_.create_region(3 * kPage).status(), Code::kNoResources,
                   {"limits.registered_bytes_per_client", "12288 bytes more", "limit of 32768",
                    "24576 in use"}));
  const Region second = make_region(client_, kPage);
  const Region third = make_region(client_, kPage);
  EXPECT_TRUE(says(client_.create_region(kPage).status(), Code::kNoResources,
                   {"limits.regions_per_client", "limit of 3", "3"}));
  EXPECT_TRUE(client_.free_region(third.handle).ok());
  EXPECT_TRUE(client_.create_region(kPage).ok()) << "what was freed is there again";

  const Geometry g = small_geometry(1);
  const auto add_layout = [&] {
    return client_.register_layout(fully_contiguous(region.handle, 0, g)).status();
  };
  EXPECT_TRUE(add_layout().ok());
  const LayoutHandle layout = *client_.register_layout(fully_contiguous(second.handle, 0, g));
  EXPECT_TRUE(says(add_layout(), Code::kNoResources, {"limits.layouts_per_client", "limit of 2"}));

  std::optional<Channel> extra(*client_.open_channel());
  EXPECT_TRUE(says(client_.open_channel().status(), Code::kNoResources,
                   {"limits.channels_per_client", "limit of 2"}));
  Status elsewhere;
  const std::vector<RangeOp> op = {{region.handle, 0, second.handle, 0, 1}};
  std::thread([&] { elsewhere = client_.submit(op); }).join();
  EXPECT_TRUE(says(elsewhere, Code::kNoResources, {"limits.channels_per_client"}));
  extra.reset();
  do {  // it counts until it has drained
    std::thread([&] { elsewhere = client_.submit(op); }).join();
  } while (elsewhere.code() == Code::kNoResources);
  EXPECT_TRUE(elsewhere.ok()) << elsewhere.to_string();

  Client other = attach("other");
  AttachOptions options;
  options.instance = "third";
  options.run_dir = engine_->run_dir();
  options.wait_ms = 0;
  EXPECT_TRUE(
      says(Client::attach(options).status(), Code::kNoResources, {"limits.clients", "limit of 2"}));
  ASSERT_TRUE(client_.publish(layout, Tier::kG2).ok());
  EXPECT_TRUE(other.find_layout("solo", 0, Tier::kG2).ok());
  EXPECT_TRUE(says(other.find_layout("solo", 0, Tier::kG2).status(), Code::kNoResources,
                   {"limits.found_per_client", "limit of 1"}));
}

}  // namespace
}  // namespace wherry::test
