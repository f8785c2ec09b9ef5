#include "shm/run_root.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

class RunRoot : public ::testing::Test {
 protected:
  RunRoot() {
    for (const char* name : {"system", "xdg", "shm", "tmp"}) {
      std::filesystem::create_directory(directory_ / name);
    }
    rule_.system_root = directory_ / "system/wherry";
    rule_.shm_dir = directory_ / "shm";
    rule_.tmp_dir = directory_ / "tmp";
    // An ordinary user: who runs the test, or another one when that is root.
    rule_.uid = geteuid() == 0 ? 4711 : geteuid();
  }

  void give_to_user(const std::string& path) {
    const int result = geteuid() == 0 ? chown(path.c_str(), rule_.uid, static_cast<gid_t>(-1)) : 0;
    EXPECT_EQ(result, 0);
  }

  std::string own(const std::string& directory) {
    return directory + "/wherry-" + std::to_string(rule_.uid);
  }

  tests::TemporaryDirectory directory_;
  RunRootRule rule_;
};

TEST_F(RunRoot, RootsEnginesLiveInRun) {
  rule_.uid = 0;
  rule_.xdg_runtime_dir = directory_ / "xdg";
  EXPECT_EQ(run_root(rule_), directory_ / "system/wherry");
  EXPECT_EQ(run_dir("default", rule_), directory_ / "system/wherry/default");
  EXPECT_EQ(RunRootRule().system_root, "/run/wherry");
}

TEST_F(RunRoot, AUsersEnginesLiveInTheSessionsDirectory) {
  rule_.xdg_runtime_dir = directory_ / "xdg";
  EXPECT_EQ(run_dir("a", rule_), directory_ / "xdg/wherry/a");
}

TEST_F(RunRoot, WithoutASessionTheyLiveInSharedMemory) {
  EXPECT_EQ(run_dir("a", rule_), own(rule_.shm_dir) + "/a");
  rule_.xdg_runtime_dir = directory_ / "gone";
  EXPECT_EQ(run_dir("a", rule_), own(rule_.shm_dir) + "/a");
}

TEST_F(RunRoot, WithoutSharedMemoryTheyLiveInTmp) {
  rule_.shm_dir = directory_ / "no such place";
  EXPECT_EQ(run_dir("a", rule_), own(rule_.tmp_dir) + "/a");
}

TEST_F(RunRoot, ANamesDirectoryThatIsThereIsFoundWhateverTheRootOfANewOne) {
  const std::string there = own(rule_.tmp_dir) + "/a";
  std::filesystem::create_directories(there);
  give_to_user(own(rule_.tmp_dir));
  give_to_user(there);
  EXPECT_EQ(run_dir("a", rule_), there);
  EXPECT_EQ(run_dir("b", rule_), own(rule_.shm_dir) + "/b");
}

TEST_F(RunRoot, ALinkIsNotTakenWhereverItLeads) {
  std::filesystem::create_directories(directory_ / "elsewhere/a");
  give_to_user(directory_ / "elsewhere");
  give_to_user(directory_ / "elsewhere/a");
  std::filesystem::create_symlink(directory_ / "elsewhere", own(rule_.tmp_dir));
  EXPECT_EQ(run_dir("a", rule_), own(rule_.shm_dir) + "/a");
}

TEST_F(RunRoot, ADirectoryOfSomebodyElseIsNotTaken) {
  std::filesystem::create_directories(own(rule_.tmp_dir) + "/a");
  give_to_user(own(rule_.tmp_dir) + "/a");
  const std::string former = own(rule_.tmp_dir);
  rule_.uid += 1;
  std::filesystem::rename(former, own(rule_.tmp_dir));
  EXPECT_EQ(run_dir("a", rule_), own(rule_.shm_dir) + "/a");
}

TEST_F(RunRoot, TheEnvironmentOverridesAll) {
  rule_.override_root = directory_ / "mine";
  EXPECT_EQ(run_root(rule_), directory_ / "mine");
  EXPECT_EQ(run_dir("a", rule_), directory_ / "mine/a");
  ASSERT_EQ(setenv("WHERRY_RUN_DIR", "/somewhere", 1), 0);
  EXPECT_EQ(run_dir("a"), "/somewhere/a");
  ASSERT_EQ(unsetenv("WHERRY_RUN_DIR"), 0);
}

TEST(EngineName, OnlyWhatIsSafeInAPathIsOne) {
  for (const char* name : {"a", "default", "node-0.x_1", "...", "A"}) {
    EXPECT_TRUE(valid_engine_name(name)) << name;
  }
  for (const char* name : {"", ".", "..", "a/b", "a b", "\xc3\xa4", "a\n"}) {
    EXPECT_FALSE(valid_engine_name(name)) << name;
  }
  EXPECT_TRUE(valid_engine_name(std::string(64, 'x')));
  EXPECT_FALSE(valid_engine_name(std::string(65, 'x')));
}

}  // namespace
}  // namespace wherry::shm
