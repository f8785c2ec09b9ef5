// Descriptors of region memory, and mappings that registrations share.
#include "engine/control/mappings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "shm/doorbell.h"
#include "shm/segment.h"

namespace wherry::engine {
namespace {

constexpr uint64_t kPage = 4096;

shm::UniqueFd memory(uint64_t bytes) {
  Result<shm::UniqueFd> fd = shm::create_memory("mappings-test", bytes);
  EXPECT_TRUE(fd.ok()) << fd.status().to_string();
  return std::move(*fd);
}

shm::UniqueFd reopened(int fd, int flags) {
  return shm::UniqueFd(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC));
}

shm::UniqueFd copy_of(int fd) { return shm::UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

std::string refusal(int fd, uint64_t offset, uint64_t length, Code code = Code::kInvalidArgument) {
  const Result<RegionFile> file = check_region_file(fd, offset, length);
  EXPECT_EQ(code_name(file.code()), code_name(code)) << file.status().to_string();
  return file.status().message();
}

TEST(RegionFile, AWholeSealedMemfdIsTakenWithTheRightsOfItsDescriptor) {
  const shm::UniqueFd fd = memory(4 * kPage);
  const Result<RegionFile> file = check_region_file(fd.get(), kPage, 2 * kPage);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->writable);
  EXPECT_EQ(file->page_bytes, kPage);
  const shm::UniqueFd readable = reopened(fd.get(), O_RDONLY);
  EXPECT_FALSE(check_region_file(readable.get(), 0, kPage)->writable);
}

TEST(RegionFile, AFileSealedAgainstWritingIsASourceOnly) {
  const shm::UniqueFd fd = memory(kPage);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_FALSE(check_region_file(fd.get(), 0, kPage)->writable);
}

TEST(RegionFile, WhatCannotBeTrustedIsRefused) {
  const shm::UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kPage), 0);
  ASSERT_EQ(fallocate(unsealed.get(), 0, 0, kPage), 0);
  EXPECT_NE(refusal(unsealed.get(), 0, kPage).find("F_SEAL_SHRINK"), std::string::npos);
  const shm::UniqueFd good = memory(kPage);
  refusal(reopened(good.get(), O_WRONLY).get(), 0, kPage);
  refusal(reopened(good.get(), O_PATH).get(), 0, kPage);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  refusal(ends[0], 0, kPage);
  close(ends[0]);
  close(ends[1]);
  refusal(shm::UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)).get(), 0, kPage);
  refusal(shm::UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).get(), 0, kPage);
  refusal(-1, 0, kPage);
}

TEST(RegionFile, UnbackedPagesAreRefused) {
  const shm::UniqueFd fd = memory(4 * kPage);
  ASSERT_EQ(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPage, kPage), 0);
  const std::string text = refusal(fd.get(), 0, kPage);
  EXPECT_NE(text.find(std::to_string(3 * kPage) + " of " + std::to_string(4 * kPage)),
            std::string::npos)
      << text;
}

TEST(RegionFile, RangesAreWholePagesInsideTheFileAndNotEmpty) {
  const shm::UniqueFd fd = memory(4 * kPage);
  refusal(fd.get(), 0, 0);
  refusal(fd.get(), 1, kPage);
  refusal(fd.get(), 0, kPage + 1);
  refusal(fd.get(), 4 * kPage, kPage, Code::kOutOfRange);
  refusal(fd.get(), kPage, 4 * kPage, Code::kOutOfRange);
  refusal(fd.get(), UINT64_MAX - kPage + 1, 2 * kPage, Code::kOutOfRange);
  refusal(fd.get(), kPage, UINT64_MAX - kPage + 1, Code::kOutOfRange);
}

TEST(RegionFile, ADuplicateIsTheSameFileAndAnotherMemfdIsNot) {
  const shm::UniqueFd one = memory(kPage);
  const shm::UniqueFd two = memory(kPage);
  EXPECT_TRUE(same_file(one.get(), reopened(one.get(), O_RDONLY).get()));
  EXPECT_FALSE(same_file(one.get(), two.get()));
}

// Mappings with a real registrar, driven by hand.
class MappingsTest : public ::testing::Test {
 protected:
  using Shared = std::shared_ptr<const Mapping>;

  MappingsTest() {
    eventfd_ = std::move(*shm::create_eventfd());
    RegistrarOptions options;
    options.result_eventfd = eventfd_.get();
    registrar_ = std::move(*Registrar::start(options));
    mappings_ = std::make_unique<Mappings>(registrar_.get());
  }

  // Passes one result on.
  void step() {
    RegistrarResult result;
    while (!registrar_->take(&result)) {
      pollfd watched{eventfd_.get(), POLLIN, 0};
      ASSERT_EQ(poll(&watched, 1, 60'000), 1);
      uint64_t rung = 0;
      ASSERT_EQ(read(eventfd_.get(), &rung, sizeof(rung)), 8);
    }
    mappings_->on_result(result);
  }

  // Where an acquire's answer will be; null until then.
  std::shared_ptr<std::optional<Result<Shared>>> acquire(int fd, uint64_t offset, uint64_t length) {
    const Result<RegionFile> file = check_region_file(fd, offset, length);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    auto answer = std::make_shared<std::optional<Result<Shared>>>();
    mappings_->acquire(1, *file, copy_of(fd), offset, length,
                       [answer](Result<Shared> mapping) { *answer = std::move(mapping); });
    return answer;
  }

  Shared acquire_now(int fd, uint64_t offset, uint64_t length) {
    const auto answer = acquire(fd, offset, length);
    if (!answer->has_value()) step();
    EXPECT_TRUE((*answer)->ok()) << (*answer)->status().to_string();
    return (*answer)->value();
  }

  bool release(const Shared& mapping) {
    bool released = false;
    mappings_->release(mapping, [&released] { released = true; });
    if (!released) step();
    return released;
  }

  shm::UniqueFd eventfd_;
  std::unique_ptr<Registrar> registrar_;
  std::unique_ptr<Mappings> mappings_;
};

TEST_F(MappingsTest, AMappingShowsTheClientsBytesAndIsGoneAfterItsRelease) {
  const shm::UniqueFd fd = memory(4 * kPage);
  ASSERT_EQ(pwrite(fd.get(), "wherry", 6, kPage), 6);
  const Shared mapping = acquire_now(fd.get(), kPage, 2 * kPage);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapping->base), 6), "wherry");
  EXPECT_EQ(mapping->file_offset, kPage);
  std::byte* const base = mapping->base;
  EXPECT_TRUE(release(mapping));
  EXPECT_EQ(mappings_->count(), 0u);
  EXPECT_NE(msync(base, kPage, MS_ASYNC), 0) << "still mapped";
}

TEST_F(MappingsTest, RegistrationsOfOneFileShareAMappingThatCoversBoth) {
  const shm::UniqueFd fd = memory(8 * kPage);
  const Shared whole = acquire_now(fd.get(), 0, 8 * kPage);
  const Shared part = acquire_now(reopened(fd.get(), O_RDONLY).get(), 2 * kPage, kPage);
  EXPECT_EQ(whole, part);
  EXPECT_EQ(mappings_->count(), 1u);
  EXPECT_TRUE(release(whole));
  EXPECT_NE(part->base, nullptr) << "others still hold it";
  EXPECT_EQ(mappings_->count(), 1u);
  EXPECT_TRUE(release(part));
  EXPECT_EQ(mappings_->count(), 0u);
}

TEST_F(MappingsTest, OneThatWaitsForAMappingUnderWayGetsTheSame) {
  const shm::UniqueFd fd = memory(8 * kPage);
  const auto first = acquire(fd.get(), 0, 8 * kPage);
  const auto second = acquire(fd.get(), kPage, kPage);
  step();
  ASSERT_TRUE(first->has_value() && second->has_value());
  EXPECT_EQ((*first)->value(), (*second)->value());
}

TEST_F(MappingsTest, AWiderOrWritableNeedGetsAMappingOfItsOwnOfTheSameBacking) {
  const shm::UniqueFd fd = memory(8 * kPage);
  const Shared part = acquire_now(fd.get(), 0, 4 * kPage);
  const Shared wider = acquire_now(fd.get(), 0, 8 * kPage);
  const shm::UniqueFd other = memory(kPage);
  const Shared readable = acquire_now(reopened(other.get(), O_RDONLY).get(), 0, kPage);
  const Shared writable = acquire_now(other.get(), 0, kPage);
  EXPECT_NE(part, wider);
  EXPECT_EQ(part->backing, wider->backing);
  EXPECT_NE(readable, writable);
  EXPECT_EQ(readable->backing, writable->backing);
  EXPECT_NE(part->backing, readable->backing);
  EXPECT_FALSE(readable->writable);
  EXPECT_TRUE(writable->writable);
}

TEST_F(MappingsTest, ABrokenMappingIsNotShared) {
  const shm::UniqueFd fd = memory(kPage);
  const Shared broken = acquire_now(fd.get(), 0, kPage);
  const_cast<Mapping&>(*broken).broken = true;
  EXPECT_NE(acquire_now(fd.get(), 0, kPage), broken);
}

TEST_F(MappingsTest, ABackingHasAnotherNumberInItsNextLife) {
  const shm::UniqueFd fd = memory(kPage);
  const Shared first = acquire_now(fd.get(), 0, kPage);
  const uint64_t number = first->backing;
  EXPECT_TRUE(release(first));
  EXPECT_NE(acquire_now(fd.get(), 0, kPage)->backing, number);
}

TEST_F(MappingsTest, AFailureReachesAllWhoWaitAndLeavesNothing) {
  const shm::UniqueFd fd = memory(8 * kPage);
  const Result<RegionFile> file = check_region_file(fd.get(), 0, kPage);
  // Sealed between the check and the mapping.
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  int failures = 0;
  for (int i = 0; i < 2; ++i) {
    mappings_->acquire(1, *file, copy_of(fd.get()), 0, kPage, [&](const Result<Shared>& mapping) {
      EXPECT_EQ(mapping.code(), Code::kNoResources);
      ++failures;
    });
  }
  step();
  EXPECT_EQ(failures, 2);
  EXPECT_EQ(mappings_->count(), 0u);
}

}  // namespace
}  // namespace wherry::engine
