#include "engine/control/run_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "engine/control/lock_file.h"

namespace wherry::engine {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

class RunDirTest : public testing::Test {
 protected:
  RunDirTest() {
    std::string pattern = (fs::temp_directory_path() / "wherry-run-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    config_.run_dir = root_ + "/root/engine";
  }
  ~RunDirTest() override { fs::remove_all(root_); }

  Status refusal(const RunDirOptions& options = {}) const {
    const Result<RunDir> dir = RunDir::open(config_, options);
    EXPECT_FALSE(dir.ok());
    return dir.status();
  }
  std::string lock_path() const { return config_.run_dir + "/engine.lock"; }

  std::string root_;
  Config config_;
};

// A child process that holds what `before` made until told to go on; then `after` runs and it
// exits.
class Child {
 public:
  template <typename Before, typename After>
  Child(Before before, After after) {
    int ready[2];
    int go[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(go), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(go[1]);
      auto held = before();
      char byte = 1;
      (void)!write(ready[1], &byte, 1);
      (void)!read(go[0], &byte, 1);
      after(held);
      (void)!write(ready[1], &byte, 1);
      (void)!read(go[0], &byte, 1);
      _exit(0);
    }
    ready_ = ready[0];
    go_ = go[1];
    close(ready[1]);
    close(go[0]);
    wait_ready();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    reap();
    close(ready_);
    close(go_);
  }
  pid_t pid() const { return pid_; }
  // Lets `after` run, and returns when it has.
  void go_on() {
    EXPECT_EQ(write(go_, "g", 1), 1);
    wait_ready();
  }
  void end() { EXPECT_EQ(write(go_, "g", 1), 1); }
  void reap() {
    if (!reaped_) waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  void wait_ready() {
    char byte = 0;
    EXPECT_EQ(read(ready_, &byte, 1), 1);
  }

  pid_t pid_ = 0;
  int ready_ = -1;
  int go_ = -1;
  bool reaped_ = false;
};

TEST_F(RunDirTest, IsMadeWithAllThatIsMissingAboveAndForItsOwnerOnly) {
  const Result<RunDir> dir = RunDir::open(config_);
  ASSERT_TRUE(dir.ok()) << dir.status().to_string();
  EXPECT_EQ(dir->path(), config_.run_dir);
  EXPECT_EQ(dir->socket_path(), config_.run_dir + "/engine.sock");
  EXPECT_EQ(mode_of(config_.run_dir), 0700u);
  EXPECT_FALSE(dir->taken_over());
  const LockOwner self = this_process("");
  EXPECT_GT(self.start_time, 0u);
  EXPECT_EQ(read_text(lock_path()),
            std::to_string(getpid()) + " " + std::to_string(self.start_time) + " default\n");
}

TEST_F(RunDirTest, LetsTheGroupOfTheSocketIn) {
  config_.socket.group = "root";
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a directory to a group";
  const Result<RunDir> dir = RunDir::open(config_);
  ASSERT_TRUE(dir.ok()) << dir.status().to_string();
  EXPECT_EQ(mode_of(config_.run_dir), 0750u);
}

TEST_F(RunDirTest, LetsEverybodyInWhenTheSocketDoes) {
  config_.socket.mode = 0666;
  ASSERT_TRUE(RunDir::open(config_).ok());
  EXPECT_EQ(mode_of(config_.run_dir), 0755u);
}

TEST_F(RunDirTest, ThatWasOpenToOthersIsClosed) {
  fs::create_directories(config_.run_dir);
  ASSERT_EQ(chmod(config_.run_dir.c_str(), 0777), 0);
  ASSERT_TRUE(RunDir::open(config_).ok());
  EXPECT_EQ(mode_of(config_.run_dir), 0700u);
}

TEST_F(RunDirTest, ALinkInItsPlaceIsNotFollowed) {
  fs::create_directories(root_ + "/elsewhere");
  fs::create_directories(root_ + "/root");
  fs::create_directory_symlink(root_ + "/elsewhere", config_.run_dir);
  EXPECT_EQ(refusal().code(), Code::kNotPermitted);
  EXPECT_TRUE(fs::is_empty(root_ + "/elsewhere"));
}

TEST_F(RunDirTest, AFileInItsPlaceIsRefused) {
  fs::create_directories(root_ + "/root");
  std::ofstream(config_.run_dir) << "x";
  EXPECT_EQ(refusal().code(), Code::kNotPermitted);
}

TEST_F(RunDirTest, InsideADirectoryThatOthersCanWriteToItIsRefused) {
  fs::create_directories(root_ + "/root");
  ASSERT_EQ(chmod((root_ + "/root").c_str(), 0777), 0);
  EXPECT_NE(refusal().message().find("0777"), std::string::npos);
  ASSERT_EQ(chmod((root_ + "/root").c_str(), 01777), 0);
  EXPECT_TRUE(RunDir::open(config_).ok());
}

TEST_F(RunDirTest, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a directory of another user";
  fs::create_directories(config_.run_dir);
  ASSERT_EQ(chown(config_.run_dir.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal().message().find("uid 12345"), std::string::npos);
  ASSERT_EQ(chown(config_.run_dir.c_str(), 0, 0), 0);
  ASSERT_EQ(chown((root_ + "/root").c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal().message().find("uid 12345"), std::string::npos);
}

TEST_F(RunDirTest, OffTmpfsWarnsAndOnTmpfsDoesNot) {
  struct statfs file_system {};
  ASSERT_EQ(statfs(root_.c_str(), &file_system), 0);
  const Result<RunDir> dir = RunDir::open(config_);
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(dir->warnings().empty(), file_system.f_type == TMPFS_MAGIC);
  Config in_memory = config_;
  std::string pattern = "/dev/shm/wherry-run-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) GTEST_SKIP() << "no /dev/shm here";
  in_memory.run_dir = pattern + "/engine";
  const Result<RunDir> on_tmpfs = RunDir::open(in_memory);
  fs::remove_all(pattern);
  ASSERT_TRUE(on_tmpfs.ok());
  EXPECT_TRUE(on_tmpfs->warnings().empty());
}

TEST_F(RunDirTest, ALiveOwnerIsNamedAndNotDisturbed) {
  Child holder([&] { return RunDir::open(config_); }, [](Result<RunDir>&) {});
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_NE(status.message().find("pid " + std::to_string(holder.pid())), std::string::npos)
      << status.message();
  EXPECT_TRUE(is_locked(lock_path()));
}

TEST_F(RunDirTest, AfterSigkillOfTheOwnerItIsTakenOver) {
  Child owner([&] { return RunDir::open(config_); }, [](Result<RunDir>&) {});
  std::ofstream(config_.run_dir + "/engine.sock") << "left behind";
  std::ofstream(config_.run_dir + "/stats") << "left behind";
  ASSERT_EQ(kill(owner.pid(), SIGKILL), 0);
  owner.reap();
  const Result<RunDir> dir = RunDir::open(config_);
  ASSERT_TRUE(dir.ok()) << dir.status().to_string();
  EXPECT_TRUE(dir->taken_over());
  EXPECT_EQ(read_text(dir->stats_path()), "left behind");
}

// A process whose lock is gone although it lives stands for one that is still being torn down.
TEST_F(RunDirTest, ATakeoverWaitsUntilTheFormerProcessIsGone) {
  Child former([&] { return RunDir::open(config_); },
               [&](Result<RunDir>& held) {
                 const LockOwner self = this_process("former");
                 *held = RunDir();
                 const int fd = open(lock_path().c_str(), O_RDWR | O_CLOEXEC);
                 (void)write_owner(fd, self);
                 close(fd);
               });
  former.go_on();
  const Status status = refusal({.takeover_timeout = std::chrono::milliseconds(1)});
  EXPECT_EQ(status.code(), Code::kTimedOut);
  EXPECT_NE(status.message().find("pid " + std::to_string(former.pid())), std::string::npos)
      << status.message();

  std::thread end([&] { former.end(); });
  const Result<RunDir> dir = RunDir::open(config_);  // the zombie is gone as far as it matters
  end.join();
  ASSERT_TRUE(dir.ok()) << dir.status().to_string();
  EXPECT_TRUE(dir->taken_over());
}

TEST_F(RunDirTest, AnotherProcessOfTheFormersPidIsNotWaitedFor) {
  Child stranger([] { return 0; }, [](int&) {});
  fs::create_directories(config_.run_dir);
  std::ofstream(lock_path()) << stranger.pid() << " 1 default\n";
  const Result<RunDir> dir = RunDir::open(config_);
  ASSERT_TRUE(dir.ok()) << dir.status().to_string();
}

TEST_F(RunDirTest, AThreadThatNowHasTheFormersNumberIsNotWaitedFor) {
  { ASSERT_TRUE(RunDir::open(config_).ok()); }
  std::promise<pid_t> number;
  std::promise<void> end;
  std::thread other([&] {
    number.set_value(gettid());
    end.get_future().wait();
  });
  std::ofstream(lock_path()) << number.get_future().get() << " 1 former";
  const Result<RunDir> dir = RunDir::open(config_);
  EXPECT_TRUE(dir.ok()) << dir.status().to_string();
  end.set_value();
  other.join();
}

TEST_F(RunDirTest, GarbageInTheLockFileIsNoObstacle) {
  fs::create_directories(config_.run_dir);
  for (const std::string text :
       {"", "garbage", "-1 0", "0 0", "99999999999999999999 1", "\xff\x00\n"}) {
    std::ofstream(lock_path()) << text << std::string(100'000, 'x');
    const Result<RunDir> dir = RunDir::open(config_);
    ASSERT_TRUE(dir.ok()) << dir.status().to_string();
    EXPECT_LT(fs::file_size(lock_path()), 100u);
  }
}

TEST_F(RunDirTest, ALockFileThatIsALinkOrADirectoryIsRefused) {
  fs::create_directories(config_.run_dir);
  std::ofstream(root_ + "/victim") << "precious";
  fs::create_symlink(root_ + "/victim", lock_path());
  EXPECT_EQ(refusal().code(), Code::kNotPermitted);
  EXPECT_EQ(read_text(root_ + "/victim"), "precious");
  fs::remove(lock_path());
  fs::create_directory(lock_path());
  EXPECT_EQ(refusal().code(), Code::kNotPermitted);
}

TEST_F(RunDirTest, ACleanEndRemovesTheSocketOnlyAndTheNextStartWaitsForNobody) {
  Result<RunDir> dir = RunDir::open(config_);
  ASSERT_TRUE(dir.ok());
  std::ofstream(dir->socket_path()) << "socket";
  std::ofstream(dir->stats_path()) << "stats";
  dir->close();
  EXPECT_FALSE(fs::exists(dir->socket_path()));
  EXPECT_TRUE(fs::exists(dir->stats_path()));
  EXPECT_TRUE(fs::exists(lock_path()));
  EXPECT_FALSE(is_locked(lock_path()));
  const Result<RunDir> next = RunDir::open(config_);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->taken_over());
}

TEST_F(RunDirTest, PathsThatCannotBeOneAreRefused) {
  for (const std::string& path :
       {std::string("relative"), std::string("/"), "/tmp/" + std::string(100, 'a')}) {
    config_.run_dir = path;
    EXPECT_EQ(refusal().code(), Code::kInvalidArgument) << path;
  }
}

}  // namespace
}  // namespace wherry::engine
