// The kernel's guarantees behind the two segments, tried with real seals.
#include "shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "shm/cgroup.h"

namespace wherry::shm {
namespace {

constexpr ChannelSizes kSizes{64, 64};

MappedSegment map_or_fail(int fd, uint64_t bytes, Access access) {
  Result<MappedSegment> mapping = MappedSegment::map(fd, bytes, access);
  EXPECT_TRUE(mapping.ok()) << mapping.status().to_string();
  return mapping.ok() ? std::move(*mapping) : MappedSegment();
}

// The errno of a shared mapping, or 0 (and it is taken away again).
int error_of_mmap(int fd, uint64_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return errno;
  munmap(at, bytes);
  return 0;
}

int error_of_pwrite(int fd) {
  const char byte = 1;
  return pwrite(fd, &byte, 1, 0) == 1 ? 0 : errno;
}

int error_of_punch(int fd, uint64_t bytes) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  return fallocate(fd, mode, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

int error_of_ftruncate(int fd, uint64_t bytes) {
  return ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

int error_of_remove(const MappedSegment& mapping) {
  return madvise(mapping.data(), mapping.size(), MADV_REMOVE) == 0 ? 0 : errno;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class E2c : public testing::Test {
 protected:
  void SetUp() override {
    Result<E2cSegment> made = create_e2c(header_);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    engine_ = std::move(*made);
  }
  // What a client holds: a descriptor of its own for the same file.
  UniqueFd client_fd() const { return UniqueFd(dup(engine_.fd.get())); }

  const SegmentHeader header_ = make_header(SegmentKind::kE2c, kSizes);
  E2cSegment engine_;
};

TEST_F(E2c, WhatTheEngineWritesTheClientReads) {
  const MappedSegment client = map_or_fail(client_fd().get(), header_.total_bytes, Access::kRead);
  auto* words = engine_.mapping.at<EngineWords>(header_.words_offset);
  words->submission_head.store(77);
  EXPECT_EQ(client.at<const EngineWords>(header_.words_offset)->submission_head.load(), 77u);
}

TEST_F(E2c, TheClientCannotMapItWritable) {
  const UniqueFd fd = client_fd();
  EXPECT_EQ(error_of_mmap(fd.get(), header_.total_bytes, PROT_READ | PROT_WRITE), EPERM);
  EXPECT_EQ(error_of_mmap(fd.get(), header_.total_bytes, PROT_WRITE), EPERM);
  EXPECT_FALSE(MappedSegment::map(fd.get(), header_.total_bytes, Access::kReadWrite).ok());
}

TEST_F(E2c, TheClientCannotMakeItsMappingWritable) {
  const MappedSegment client = map_or_fail(client_fd().get(), header_.total_bytes, Access::kRead);
  EXPECT_EQ(mprotect(client.data(), client.size(), PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(E2c, TheClientCannotChangeTheFileInAnyOtherWay) {
  const UniqueFd fd = client_fd();
  EXPECT_EQ(error_of_pwrite(fd.get()), EPERM);
  EXPECT_EQ(error_of_punch(fd.get(), header_.total_bytes), EPERM);
  EXPECT_EQ(error_of_ftruncate(fd.get(), 0), EPERM);
  EXPECT_EQ(error_of_ftruncate(fd.get(), header_.total_bytes * 2), EPERM);
  const MappedSegment client = map_or_fail(fd.get(), header_.total_bytes, Access::kRead);
  EXPECT_NE(error_of_remove(client), 0);
  EXPECT_EQ(engine_.mapping.at<SegmentHeader>(0)->magic, kSegmentMagic);
}

TEST_F(E2c, OpeningTheFileAnewGivesTheClientNoMore) {
  const UniqueFd fd = client_fd();
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const UniqueFd again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again.valid());
  EXPECT_EQ(error_of_mmap(again.get(), header_.total_bytes, PROT_READ | PROT_WRITE), EPERM);
  EXPECT_EQ(error_of_pwrite(again.get()), EPERM);
  EXPECT_EQ(error_of_punch(again.get(), header_.total_bytes), EPERM);
  // O_TRUNC on the way in is a shrink.
  EXPECT_EQ(open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC), -1);
}

TEST_F(E2c, ItsSealsCannotBeTakenBackOrAddedTo) {
  const int seals = fcntl(engine_.fd.get(), F_GET_SEALS);
  EXPECT_EQ(seals & F_SEAL_WRITE, 0);
  EXPECT_EQ(fcntl(engine_.fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

class C2e : public testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> made = create_c2e(header_);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    fd_ = std::move(*made);
    engine_ = map_or_fail(fd_.get(), header_.total_bytes, Access::kRead);
    client_ = map_or_fail(fd_.get(), header_.total_bytes, Access::kReadWrite);
  }
  void seal() {
    const Status status = seal_c2e(fd_.get());
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::atomic<uint64_t>& written() {
    return client_.at<ClientWords>(header_.words_offset)->reap_cursor;
  }
  uint64_t seen() {
    return engine_.at<const ClientWords>(header_.words_offset)->reap_cursor.load();
  }

  const SegmentHeader header_ = make_header(SegmentKind::kC2e, kSizes);
  UniqueFd fd_;
  MappedSegment engine_;
  MappedSegment client_;
};

TEST_F(C2e, BeforeTheSealTheClientCouldStillPunchHoles) {
  written().store(5);
  EXPECT_EQ(error_of_punch(fd_.get(), header_.total_bytes), 0);
  EXPECT_EQ(seen(), 0u);
}

TEST_F(C2e, ItsSizeIsFixedFromTheBeginning) {
  EXPECT_EQ(error_of_ftruncate(fd_.get(), 0), EPERM);
  EXPECT_EQ(error_of_ftruncate(fd_.get(), header_.total_bytes * 2), EPERM);
}

TEST_F(C2e, AfterTheSealTheClientsMappingStillWrites) {
  seal();
  written().store(6);
  EXPECT_EQ(seen(), 6u);
  // Also when its protection was changed meanwhile.
  ASSERT_EQ(mprotect(client_.data(), client_.size(), PROT_READ), 0);
  ASSERT_EQ(mprotect(client_.data(), client_.size(), PROT_READ | PROT_WRITE), 0);
  written().store(7);
  EXPECT_EQ(seen(), 7u);
}

TEST_F(C2e, AfterTheSealAForkedChildOfTheClientStillWrites) {
  seal();
  const pid_t child = fork();
  if (child == 0) {
    written().store(8);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(seen(), 8u);
}

TEST_F(C2e, AfterTheSealNobodyCanPunchHolesOrMapItWritable) {
  written().store(9);
  seal();
  EXPECT_EQ(error_of_punch(fd_.get(), header_.total_bytes), EPERM);
  EXPECT_NE(error_of_remove(client_), 0);
  EXPECT_EQ(error_of_mmap(fd_.get(), header_.total_bytes, PROT_READ | PROT_WRITE), EPERM);
  EXPECT_EQ(error_of_pwrite(fd_.get()), EPERM);
  EXPECT_EQ(error_of_ftruncate(fd_.get(), 0), EPERM);
  const MappedSegment late = map_or_fail(fd_.get(), header_.total_bytes, Access::kRead);
  EXPECT_EQ(mprotect(late.data(), late.size(), PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(seen(), 9u);
}

TEST_F(C2e, ASecondSealIsAnError) {
  seal();
  EXPECT_EQ(seal_c2e(fd_.get()).code(), Code::kInternal);
}

TEST(Segment, BothKindsBeginWithTheHeaderTheyWereMadeOf) {
  SegmentHeader c2e = make_header(SegmentKind::kC2e, kSizes);
  c2e.session = 0x1122334455667788;
  const Result<UniqueFd> c2e_fd = create_c2e(c2e);
  ASSERT_TRUE(c2e_fd.ok());
  const MappedSegment mapping = map_or_fail(c2e_fd->get(), c2e.total_bytes, Access::kRead);
  const Result<SegmentHeader> read = read_header(mapping, SegmentKind::kC2e);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(std::memcmp(&*read, &c2e, sizeof(c2e)), 0);
  EXPECT_EQ(read_header(mapping, SegmentKind::kE2c).code(), Code::kInvalidArgument);

  const SegmentHeader e2c = make_header(SegmentKind::kE2c, kSizes);
  const Result<E2cSegment> segment = create_e2c(e2c);
  ASSERT_TRUE(segment.ok());
  const Result<SegmentHeader> read2 = read_header(segment->mapping, SegmentKind::kE2c);
  ASSERT_TRUE(read2.ok()) << read2.status().to_string();
  EXPECT_EQ(std::memcmp(&*read2, &e2c, sizeof(e2c)), 0);
}

TEST(Segment, OneWithoutRoomForAHeaderHasNone) {
  const Result<UniqueFd> fd = create_memory("small", 4096);
  ASSERT_TRUE(fd.ok());
  const MappedSegment mapping = map_or_fail(fd->get(), sizeof(SegmentHeader) - 1, Access::kRead);
  const Result<SegmentHeader> read = read_header(mapping, SegmentKind::kC2e);
  EXPECT_EQ(read.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(read.status().message(), std::to_string(sizeof(SegmentHeader) - 1)));
}

TEST(Segment, AFileShorterThanAskedIsRefusedWithBothSizes) {
  const Result<UniqueFd> fd = create_memory("short", 8192);
  ASSERT_TRUE(fd.ok());
  EXPECT_TRUE(MappedSegment::map(fd->get(), 8192, Access::kRead).ok());
  for (const uint64_t bytes : {uint64_t{8193}, uint64_t{1} << 40, UINT64_MAX}) {
    const Result<MappedSegment> mapping = MappedSegment::map(fd->get(), bytes, Access::kRead);
    EXPECT_EQ(mapping.code(), Code::kInvalidArgument) << bytes;
    EXPECT_TRUE(contains(mapping.status().message(), std::to_string(bytes)));
    EXPECT_TRUE(contains(mapping.status().message(), "8192"));
  }
}

TEST(Segment, ZeroBytesAndDescriptorsThatAreNoFilesAreRefused) {
  const Result<UniqueFd> fd = create_memory("zero", 4096);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(MappedSegment::map(fd->get(), 0, Access::kRead).code(), Code::kInvalidArgument);
  EXPECT_EQ(MappedSegment::map(-1, 4096, Access::kRead).code(), Code::kInvalidArgument);
  const UniqueFd device(open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(MappedSegment::map(device.get(), 4096, Access::kRead).code(), Code::kInvalidArgument);
}

TEST(Segment, AMappingMovesAndIsThereOnce) {
  const Result<UniqueFd> fd = create_memory("moves", 4096);
  ASSERT_TRUE(fd.ok());
  MappedSegment one = map_or_fail(fd->get(), 4096, Access::kReadWrite);
  std::byte* const at = one.data();
  const MappedSegment two = std::move(one);
  EXPECT_EQ(two.data(), at);
  EXPECT_EQ(two.size(), 4096u);
  EXPECT_FALSE(MappedSegment().mapped());
  *two.data() = std::byte{3};
}

TEST(Memory, IsWholePagesAllOfThemAllocatedAndSealed) {
  for (const uint64_t bytes : {1, 4096, 4097, 1'000'000}) {
    const Result<UniqueFd> fd = create_memory("pages", bytes);
    ASSERT_TRUE(fd.ok()) << fd.status().to_string();
    struct stat info {};
    ASSERT_EQ(fstat(fd->get(), &info), 0);
    EXPECT_EQ(static_cast<uint64_t>(info.st_size), (bytes + 4095) / 4096 * 4096);
    EXPECT_GE(info.st_blocks * 512, info.st_size);
    EXPECT_EQ(fcntl(fd->get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
    EXPECT_NE(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Memory, ZeroBytesAndSizesThatWrapAroundAreInvalid) {
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, UINT64_MAX - 4095}) {
    const Result<UniqueFd> fd = create_memory("wrong", bytes);
    EXPECT_EQ(fd.code(), Code::kInvalidArgument) << bytes;
    EXPECT_TRUE(contains(fd.status().message(), std::to_string(bytes)));
  }
  EXPECT_EQ(create_memory("wrong", UINT64_MAX - 100, 2 << 20).code(), Code::kInvalidArgument);
}

// While it lives no file may grow beyond `bytes`, so that a test that fails does not take the
// host's memory: allocating too much does not fail, it kills.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
    handler_ = signal(SIGXFSZ, SIG_IGN);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = nullptr;
};

TEST(Memory, MoreThanTheHostHasIsRefusedBeforeTheKernelKills) {
  const FileLimit limit(64 << 20);
  for (const uint64_t bytes : {uint64_t{1} << 50, uint64_t{1} << 63, UINT64_MAX - 4096}) {
    const Result<UniqueFd> fd = create_memory("too much", bytes);
    EXPECT_EQ(fd.code(), Code::kNoResources) << bytes;
    EXPECT_TRUE(contains(fd.status().message(), "too much")) << fd.status().message();
    // Not the kernel's refusal, which comes too late where there is no such limit.
    EXPECT_TRUE(contains(fd.status().message(), "got room for")) << fd.status().message();
  }
}

TEST(Memory, PageSizesThatAreNoneAreInvalid) {
  for (const uint64_t page : {uint64_t{1}, uint64_t{2048}, uint64_t{3} << 20, uint64_t{4095}}) {
    EXPECT_EQ(create_memory("pages", 4096, page).code(), Code::kInvalidArgument) << page;
  }
  // A power of two that no machine has: the kernel says so.
  const Result<UniqueFd> odd = create_memory("pages", 4096, 1 << 13);
  EXPECT_EQ(odd.code(), Code::kNoResources);
  EXPECT_TRUE(contains(odd.status().message(), "huge page")) << odd.status().message();
}

TEST(Memory, HugePagesBeyondThePoolAreRefusedWithWhatToDo) {
  constexpr uint64_t kHuge = 2 << 20;
  const uint64_t free =
      number_of_key(read_small_file("/proc/meminfo").value_or(""), "HugePages_Free").value_or(0);
  const uint64_t more = read_number_file("/proc/sys/vm/nr_overcommit_hugepages").value_or(0);
  const Result<UniqueFd> fd = create_memory("huge", (free + more + 8) * kHuge, kHuge);
  ASSERT_EQ(fd.code(), Code::kNoResources);
  EXPECT_TRUE(contains(fd.status().message(), "huge pages")) << fd.status().message();
  EXPECT_TRUE(contains(fd.status().message(), "vm.nr_hugepages")) << fd.status().message();
  // What it had taken until then is back.
  EXPECT_EQ(
      number_of_key(read_small_file("/proc/meminfo").value_or(""), "HugePages_Free").value_or(0),
      free);
}

TEST(Memory, HugePagesAreTakenWhenThereAreSome) {
  constexpr uint64_t kHuge = 2 << 20;
  if (number_of_key(read_small_file("/proc/meminfo").value_or(""), "HugePages_Free").value_or(0) ==
      0) {
    GTEST_SKIP() << "this host has no free huge page";
  }
  const Result<UniqueFd> fd = create_memory("huge", 1, kHuge);
  ASSERT_TRUE(fd.ok()) << fd.status().to_string();
  const MappedSegment mapping = map_or_fail(fd->get(), kHuge, Access::kReadWrite);
  *mapping.data() = std::byte{1};
}

}  // namespace
}  // namespace wherry::shm
