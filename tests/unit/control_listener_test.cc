#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "shm/control_socket.h"
#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Listener : public testing::Test {
 protected:
  const tests::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "engine.sock";
};

TEST_F(Listener, ConnectionsAreAcceptedAndCarryMessages) {
  const Result<UniqueFd> listener = listen_control(path_, 0600);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_FALSE(accept_control(listener->get())->has_value());
  Result<ControlSocket> client = ControlSocket::connect(path_);
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  Result<std::optional<ControlSocket>> engine = accept_control(listener->get());
  ASSERT_TRUE(engine.ok() && engine->has_value());
  ASSERT_TRUE(client->send("hello").ok());
  EXPECT_EQ((*engine)->receive()->value().text, "hello");
  ASSERT_TRUE((*engine)->send("welcome").ok());
  EXPECT_EQ(client->receive()->value().text, "welcome");
  EXPECT_EQ((*engine)->peer()->pid, getpid());
  for (const int fd : {listener->get(), client->fd(), (*engine)->fd()}) {
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST_F(Listener, TheSocketFileHasTheModeAskedForWhateverTheUmask) {
  for (const mode_t mode : {mode_t{0600}, mode_t{0660}, mode_t{0666}}) {
    const mode_t old = umask(077);
    const Result<UniqueFd> listener = listen_control(path_, mode);  // replaces the one before
    umask(old);
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    struct stat info {};
    ASSERT_EQ(stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
  }
}

TEST_F(Listener, AMissingSocketAndOneWithoutAnEngineAreToldApart) {
  const Status missing = ControlSocket::connect(path_).status();
  EXPECT_EQ(missing.code(), Code::kUnreachable);
  EXPECT_TRUE(contains(missing.message(), path_)) << missing.message();
  EXPECT_TRUE(contains(missing.message(), "is the engine running")) << missing.message();
  { const Result<UniqueFd> listener = listen_control(path_, 0600); }
  const Status dead = ControlSocket::connect(path_).status();
  EXPECT_EQ(dead.code(), Code::kUnreachable);
  EXPECT_TRUE(contains(dead.message(), path_)) << dead.message();
  EXPECT_TRUE(contains(dead.message(), "left its socket behind")) << dead.message();
}

TEST_F(Listener, ABacklogThatIsFullSaysTryAgain) {
  const Result<UniqueFd> listener = listen_control(path_, 0600);
  ASSERT_TRUE(listener.ok());
  std::vector<ControlSocket> waiting;
  Status status;
  while (status.ok() && waiting.size() < 1000) {
    Result<ControlSocket> client = ControlSocket::connect(path_);
    status = client.status();
    if (client.ok()) waiting.push_back(std::move(*client));
  }
  EXPECT_EQ(status.code(), Code::kUnreachable);
  EXPECT_TRUE(contains(status.message(), "try again")) << status.message();
}

TEST_F(Listener, PathsThatDoNotFitASocketAddressAreRefusedWithTheLimit) {
  const std::string longest = path_ + std::string(107 - path_.size(), 'x');
  EXPECT_TRUE(listen_control(longest, 0600).ok());
  for (const std::string& path : {longest + "x", std::string()}) {
    const Status listening = listen_control(path, 0600).status();
    EXPECT_EQ(listening.code(), Code::kInvalidArgument);
    EXPECT_TRUE(contains(listening.message(), "1 to 107 bytes, got " + std::to_string(path.size())))
        << listening.message();
    EXPECT_EQ(ControlSocket::connect(path).code(), Code::kInvalidArgument);
  }
}

TEST_F(Listener, AFolderThatIsNotThereIsNamed) {
  const std::string path = directory_ / "no/engine.sock";
  const Status status = listen_control(path, 0600).status();
  EXPECT_EQ(status.code(), Code::kNoResources);
  EXPECT_TRUE(contains(status.message(), path)) << status.message();
}

}  // namespace
}  // namespace wherry::shm
