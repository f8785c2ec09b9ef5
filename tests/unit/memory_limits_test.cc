#include "shm/memory_limits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace wherry::shm {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A tree that looks like /proc and /sys/fs/cgroup.
class MemoryLimits : public testing::Test {
 protected:
  MemoryLimits() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "wherry-memory-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    write("proc/meminfo", "MemTotal: 2000000 kB\nMemFree: 10 kB\nMemAvailable:    1048576 kB\n");
  }
  ~MemoryLimits() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void group_v2(const std::string& path, const std::string& max, uint64_t current) {
    write("cgroup" + path + "/memory.max", max + "\n");
    write("cgroup" + path + "/memory.current", std::to_string(current) + "\n");
  }
  void group_v1(const std::string& path, uint64_t limit, uint64_t usage) {
    write("cgroup/memory" + path + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write("cgroup/memory" + path + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
  }
  MemoryRoom room() const { return memory_room(root_ + "/proc", root_ + "/cgroup"); }

  std::string root_;
};

TEST_F(MemoryLimits, WithoutGroupsTheHostsAvailableMemoryIsTheRoom) {
  EXPECT_EQ(room().bytes, 1024 * kMiB);
  EXPECT_NE(room().limit.find("MemAvailable"), std::string::npos);
  write("proc/self/cgroup", "0::/gone\n");
  EXPECT_EQ(room().bytes, 1024 * kMiB);
}

TEST_F(MemoryLimits, WithoutAnythingToReadThereIsNoLimit) {
  EXPECT_EQ(memory_room(root_ + "/none", root_ + "/none").bytes, UINT64_MAX);
}

TEST_F(MemoryLimits, TheOwnGroupOfVersion2Limits) {
  write("proc/self/cgroup", "0::/a/b\n");
  group_v2("/a/b", std::to_string(100 * kMiB), 30 * kMiB);
  EXPECT_EQ(room().bytes, 70 * kMiB);
  EXPECT_EQ(room().limit, root_ + "/cgroup/a/b/memory.max");
}

TEST_F(MemoryLimits, AnAncestorLimitsToo) {
  write("proc/self/cgroup", "0::/a/b/c\n");
  group_v2("/a/b/c", "max", 1 * kMiB);
  group_v2("/a/b", std::to_string(500 * kMiB), 1 * kMiB);
  group_v2("/a", std::to_string(60 * kMiB), 50 * kMiB);
  EXPECT_EQ(room().bytes, 10 * kMiB);
  EXPECT_EQ(room().limit, root_ + "/cgroup/a/memory.max");
}

TEST_F(MemoryLimits, TheThrottlingLimitCountsAsWell) {
  write("proc/self/cgroup", "0::/a\n");
  group_v2("/a", "max", 5 * kMiB);
  write("cgroup/a/memory.high", std::to_string(20 * kMiB) + "\n");
  EXPECT_EQ(room().bytes, 15 * kMiB);
}

TEST_F(MemoryLimits, AGroupOverItsLimitLeavesNothing) {
  write("proc/self/cgroup", "0::/a\n");
  group_v2("/a", std::to_string(10 * kMiB), 11 * kMiB);
  EXPECT_EQ(room().bytes, 0u);
}

TEST_F(MemoryLimits, TheFileCacheGivesWayAndIsNoUse) {
  write("proc/self/cgroup", "0::/a\n");
  group_v2("/a", std::to_string(100 * kMiB), 90 * kMiB);
  write("cgroup/a/memory.stat", "anon 1\ninactive_file " + std::to_string(40 * kMiB) +
                                    "\nactive_file " + std::to_string(20 * kMiB) + "\nshmem 7\n");
  EXPECT_EQ(room().bytes, 70 * kMiB);
}

TEST_F(MemoryLimits, Version1IsReadWithItsOwnNamesAndAncestors) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/ignored\n");
  EXPECT_EQ(room().bytes, 1024 * kMiB);
  write("proc/self/cgroup", "4:memory:/x/y\n0::/\n");
  group_v1("/x/y", uint64_t{0x7ffffffffffff000}, 3 * kMiB);
  EXPECT_EQ(room().bytes, 1024 * kMiB);
  group_v1("/x", 50 * kMiB, 20 * kMiB);
  write("cgroup/memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n");
  EXPECT_EQ(room().bytes, 31 * kMiB);
}

TEST_F(MemoryLimits, ControllersMountedTogetherAreFound) {
  write("proc/self/cgroup", "4:cpu,memory:/x\n");
  write("cgroup/cpu,memory/x/memory.limit_in_bytes", std::to_string(8 * kMiB));
  write("cgroup/cpu,memory/x/memory.usage_in_bytes", "0");
  EXPECT_EQ(room().bytes, 8 * kMiB);
}

TEST_F(MemoryLimits, AContainerThatSeesOnlyItsOwnPartUsesThat) {
  for (const char* group : {"0::/../../else\n", "0::/host/path/of/the/container\n"}) {
    write("proc/self/cgroup", group);
    group_v2("", std::to_string(10 * kMiB), 4 * kMiB);
    EXPECT_EQ(room().bytes, 6 * kMiB) << group;
  }
}

TEST_F(MemoryLimits, Version2BesideVersion1IsFound) {
  write("proc/self/cgroup", "4:memory:/\n0::/u\n");
  write("cgroup/unified/cgroup.procs", "");
  group_v2("/unified/u", std::to_string(9 * kMiB), 2 * kMiB);
  EXPECT_EQ(room().bytes, 7 * kMiB);
}

TEST(MemoryCheck, KeepsAReserveOfTheSmallerOf64MiBAndASixteenth) {
  const MemoryRoom small{16 * kMiB, "a limit"};
  EXPECT_TRUE(check_memory_available(15 * kMiB, small).ok());
  EXPECT_EQ(check_memory_available(15 * kMiB + 1, small).code(), Code::kNoResources);
  const MemoryRoom large{4096 * kMiB, "a limit"};
  EXPECT_TRUE(check_memory_available(4032 * kMiB, large).ok());
  EXPECT_FALSE(check_memory_available(4032 * kMiB + 1, large).ok());
  EXPECT_FALSE(check_memory_available(1, {0, "a limit"}).ok());
}

TEST(MemoryCheck, ARefusalNamesNeedRoomAndLimit) {
  const std::string message = check_memory_available(100, {16, "the limit"}).message();
  for (const char* part : {"100 bytes", "15 (", "the limit", "16, "}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(MemoryCheck, ThisHostHasRoomForAPage) { EXPECT_TRUE(check_memory_available(4096).ok()); }

}  // namespace
}  // namespace wherry::shm
