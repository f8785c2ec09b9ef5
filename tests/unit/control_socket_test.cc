#include "shm/control_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_directory.h"

namespace wherry::shm {
namespace {

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

UniqueFd memfd(const std::string& text, int seals) {
  UniqueFd fd(memfd_create("wherry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

std::string content(int fd) {
  std::string text(100, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(pread(fd, text.data(), text.size(), 0), 0)));
  return text;
}

size_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Sends a packet as it is, without the class under test.
bool send_raw(int socket, const std::string& packet, const std::vector<int>& descriptors = {}) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(64 * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t bytes = descriptors.size() * sizeof(int);
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(item), descriptors.data(), bytes);
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

class Socket : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    here_ = ControlSocket(UniqueFd(ends[0]));
    there_ = ControlSocket(UniqueFd(ends[1]));
  }

  // A message that has to be there.
  static ControlMessage take(ControlSocket& socket) {
    Result<std::optional<ControlMessage>> message = socket.receive();
    EXPECT_TRUE(message.ok()) << message.status().to_string();
    if (!message.ok() || !message->has_value()) {
      ADD_FAILURE() << "no message";
      return {};
    }
    return std::move(**message);
  }
  ControlMessage take() { return take(there_); }

  // What receive() says to a packet that is none of ours.
  Status refusal(const std::string& packet, const std::vector<int>& descriptors = {}) {
    EXPECT_TRUE(send_raw(here_.fd(), packet, descriptors));
    const size_t before = open_descriptors();
    const Status status = there_.receive().status();
    EXPECT_EQ(open_descriptors(), before)
        << "a refused message must not leave its descriptors open";
    return status;
  }

  ControlSocket here_;
  ControlSocket there_;
};

TEST_F(Socket, MessagesArriveInOrderAndWhole) {
  EXPECT_FALSE(there_.receive()->has_value());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(here_.send("message " + std::to_string(i)).ok());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(take().text, "message " + std::to_string(i));
  EXPECT_FALSE(there_.receive()->has_value());
}

TEST_F(Socket, BothDirectionsAreIndependent) {
  ASSERT_TRUE(here_.send("ping").ok());
  ASSERT_TRUE(there_.send("pong").ok());
  EXPECT_EQ(take(here_).text, "pong");
  EXPECT_EQ(take(there_).text, "ping");
}

TEST_F(Socket, AnEmptyTextAndTextsWithZerosArriveAsTheyAre) {
  const std::string zeros("a\0b\0", 4);
  ASSERT_TRUE(here_.send("").ok());
  ASSERT_TRUE(here_.send(zeros).ok());
  EXPECT_EQ(take().text, "");
  EXPECT_EQ(take().text, zeros);
}

TEST_F(Socket, DescriptorsArriveInOrderAndTheSenderKeepsNone) {
  const size_t before = open_descriptors();
  std::vector<UniqueFd> descriptors;
  for (size_t i = 0; i < kMaxDescriptors - 1; ++i) {
    descriptors.push_back(memfd("file " + std::to_string(i), 0));
  }
  ASSERT_TRUE(here_.send("fifteen", std::move(descriptors)).ok());
  EXPECT_EQ(open_descriptors(), before);
  {
    const ControlMessage message = take();
    EXPECT_EQ(message.text, "fifteen");
    ASSERT_EQ(message.descriptors.size(), kMaxDescriptors - 1);
    for (size_t i = 0; i < message.descriptors.size(); ++i) {
      EXPECT_EQ(content(message.descriptors[i].get()), "file " + std::to_string(i));
      EXPECT_NE(fcntl(message.descriptors[i].get(), F_GETFD) & FD_CLOEXEC, 0);
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Socket, MoreDescriptorsThanThatAreNotSent) {
  std::vector<UniqueFd> descriptors;
  for (size_t i = 0; i < kMaxDescriptors; ++i) descriptors.push_back(memfd("", 0));
  const Status status = here_.send("sixteen", std::move(descriptors));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), "16")) << status.message();
  EXPECT_FALSE(here_.wants_write());
}

// The border between the two forms, seen from outside.
TEST_F(Socket, UpTo64KiBTravelInThePacketAndLongerTextsInAMemfd) {
  std::string packet(2 * kMaxInlineBytes, '\0');
  ASSERT_TRUE(here_.send(std::string(kMaxInlineBytes, 'x')).ok());
  EXPECT_EQ(recv(there_.fd(), packet.data(), packet.size(), 0),
            static_cast<ssize_t>(kMaxInlineBytes + 1));
  EXPECT_EQ(packet[0], 'i');
  ASSERT_TRUE(here_.send(std::string(kMaxInlineBytes + 1, 'x')).ok());
  EXPECT_EQ(recv(there_.fd(), packet.data(), packet.size(), 0), 1);
  EXPECT_EQ(packet[0], 'm');
}

TEST_F(Socket, TextsOfAnyLengthArriveAndShowNoMemfd) {
  for (const size_t bytes : {kMaxInlineBytes - 1, kMaxInlineBytes, kMaxInlineBytes + 1,
                             2 * kMaxInlineBytes + 7, kMaxPayloadBytes}) {
    std::string text(bytes, 'x');
    for (size_t i = 0; i < bytes; i += 997) text[i] = static_cast<char>('a' + i % 26);
    const size_t before = open_descriptors();
    ASSERT_TRUE(here_.send(text).ok());
    const ControlMessage message = take();
    EXPECT_TRUE(message.text == text) << bytes;
    EXPECT_TRUE(message.descriptors.empty());
    EXPECT_EQ(open_descriptors(), before);
  }
}

TEST_F(Socket, ALongTextMayCarryAllItsDescriptors) {
  std::vector<UniqueFd> descriptors;
  for (size_t i = 0; i < kMaxDescriptors - 1; ++i)
    descriptors.push_back(memfd(std::to_string(i), 0));
  ASSERT_TRUE(here_.send(std::string(kMaxInlineBytes + 1, 'y'), std::move(descriptors)).ok());
  const ControlMessage message = take();
  EXPECT_EQ(message.text.size(), kMaxInlineBytes + 1);
  ASSERT_EQ(message.descriptors.size(), kMaxDescriptors - 1);
  EXPECT_EQ(content(message.descriptors[14].get()), "14");
}

TEST_F(Socket, ATextBeyond16MiBIsNotSent) {
  const Status status = here_.send(std::string(kMaxPayloadBytes + 1, 'x'));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), std::to_string(kMaxPayloadBytes + 1))) << status.message();
  EXPECT_FALSE(there_.receive()->has_value());
}

TEST_F(Socket, ALongTextInAFileThatCouldStillChangeIsRefused) {
  for (const int seals : {0, F_SEAL_WRITE, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_GROW,
                          F_SEAL_WRITE | F_SEAL_SHRINK}) {
    const UniqueFd fd = memfd("text", seals);
    const Status status = refusal("m", {fd.get()});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << seals;
    EXPECT_TRUE(contains(status.message(), "sealed")) << status.message();
  }
  // The same, sealed, is taken.
  const UniqueFd good = memfd("text", kAllSeals);
  ASSERT_TRUE(send_raw(here_.fd(), "m", {good.get()}));
  EXPECT_EQ(take().text, "text");
}

TEST_F(Socket, ALongTextInSomethingThatIsNoMemfdIsRefused) {
  const tests::TemporaryDirectory directory;
  tests::write_file(directory / "file", "text");
  const UniqueFd file(open((directory / "file").c_str(), O_RDONLY | O_CLOEXEC));
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const UniqueFd read_end(pipe_ends[0]);
  const UniqueFd write_end(pipe_ends[1]);
  const UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  for (const int fd : {file.get(), read_end.get(), zero.get(), here_.fd()}) {
    EXPECT_EQ(refusal("m", {fd}).code(), Code::kInvalidArgument);
  }
}

TEST_F(Socket, AMemfdThatCannotBeReadIsRefused) {
  const UniqueFd fd = memfd("text", kAllSeals);
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const UniqueFd path_only(open(path.c_str(), O_PATH | O_CLOEXEC));
  ASSERT_TRUE(path_only.valid());
  EXPECT_EQ(refusal("m", {path_only.get()}).code(), Code::kInvalidArgument);
}

TEST_F(Socket, ALongTextBeyond16MiBIsRefusedUnread) {
  UniqueFd fd(memfd_create("wherry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), kMaxPayloadBytes + 1), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kAllSeals), 0);
  const Status status = refusal("m", {fd.get()});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), std::to_string(kMaxPayloadBytes + 1))) << status.message();
}

TEST_F(Socket, PacketsThatAreNoneOfOursAreRefused) {
  EXPECT_EQ(refusal("m").code(), Code::kInvalidArgument);  // a long text without its descriptor
  EXPECT_EQ(refusal("x").code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal("{\"type\":\"hello\"}").code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal(std::string(1, '\0')).code(), Code::kInvalidArgument);
  const UniqueFd fd = memfd("text", 0);
  EXPECT_EQ(refusal("x", {fd.get(), fd.get()}).code(), Code::kInvalidArgument);
}

TEST_F(Socket, APacketThatDoesNotFitIsRefusedAndTheNextOneIsWhole) {
  const Status status = refusal(std::string(kMaxInlineBytes + 2, 'i'));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), "65536")) << status.message();
  ASSERT_TRUE(here_.send("next").ok());
  EXPECT_EQ(take().text, "next");
}

TEST_F(Socket, MoreDescriptorsThanFitAreRefusedAndNoneStaysOpen) {
  const UniqueFd fd = memfd("text", 0);
  for (const size_t count : {kMaxDescriptors + 1, size_t{60}}) {
    EXPECT_EQ(refusal("itext", std::vector<int>(count, fd.get())).code(), Code::kInvalidArgument);
  }
}

TEST_F(Socket, WhatAReaderDoesNotReadWaitsUntilItDoes) {
  int sent = 0;
  while (!here_.wants_write()) {
    ASSERT_TRUE(here_.send("message " + std::to_string(sent++)).ok());
    ASSERT_LT(sent, 100'000);
  }
  for (int i = 0; i < 10; ++i, ++sent) {
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(memfd("file " + std::to_string(sent), 0));
    ASSERT_TRUE(here_.send("message " + std::to_string(sent), std::move(descriptors)).ok());
  }
  for (int i = 0; i < sent; ++i) {
    const ControlMessage message = take();
    ASSERT_EQ(message.text, "message " + std::to_string(i));
    if (!message.descriptors.empty()) {
      EXPECT_EQ(content(message.descriptors[0].get()), "file " + std::to_string(i));
    }
    ASSERT_TRUE(here_.flush().ok());
  }
  EXPECT_FALSE(here_.wants_write());
  EXPECT_FALSE(there_.receive()->has_value());
}

TEST_F(Socket, AReaderThatNeverReadsIsGivenUpWithABoundedQueue) {
  Status status;
  size_t taken = 0;
  while (status.ok()) {
    status = here_.send("message " + std::to_string(taken));
    if (status.ok()) ++taken;
    ASSERT_LT(taken, 100'000u);
  }
  EXPECT_EQ(status.code(), Code::kNoResources);
  EXPECT_TRUE(contains(status.message(), "1024")) << status.message();
  EXPECT_GE(taken, ControlSocket::kMaxQueued);
  EXPECT_EQ(here_.send("once more").code(), Code::kNoResources);
  // None of those it took is lost or out of order.
  for (size_t i = 0; i < taken; ++i) {
    ASSERT_EQ(take().text, "message " + std::to_string(i));
    ASSERT_TRUE(here_.flush().ok());
  }
  EXPECT_TRUE(here_.send("afterwards").ok());
  EXPECT_EQ(take().text, "afterwards");
}

TEST_F(Socket, AHangUpIsSeenByBothCalls) {
  there_ = ControlSocket();
  EXPECT_EQ(here_.receive().code(), Code::kUnreachable);
  EXPECT_EQ(here_.send("anybody?").code(), Code::kUnreachable);
}

TEST_F(Socket, WhatWasSentBeforeAHangUpIsStillRead) {
  ASSERT_TRUE(here_.send("one").ok());
  ASSERT_TRUE(here_.send("last words").ok());
  here_ = ControlSocket();
  EXPECT_EQ(take().text, "one");
  EXPECT_EQ(take().text, "last words");
  EXPECT_EQ(there_.receive().code(), Code::kUnreachable);
  EXPECT_EQ(there_.receive().code(), Code::kUnreachable);
}

// The kernel reports a reset first when the side that hung up had not read everything.
TEST_F(Socket, LastWordsAreReadAlsoWhenOurOwnMessagesWereNot) {
  ASSERT_TRUE(there_.send("never read").ok());
  ASSERT_TRUE(here_.send("the reason").ok());
  here_ = ControlSocket();
  EXPECT_EQ(take().text, "the reason");
  EXPECT_EQ(there_.receive().code(), Code::kUnreachable);
}

TEST_F(Socket, AnUnconnectedOneIsUnreachable) {
  ControlSocket none;
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(none.send("x").code(), Code::kUnreachable);
  EXPECT_EQ(none.receive().code(), Code::kUnreachable);
}

TEST_F(Socket, ThePeerIsThisProcess) {
  const Result<PeerCredentials> peer = here_.peer();
  ASSERT_TRUE(peer.ok()) << peer.status().to_string();
  EXPECT_EQ(peer->pid, getpid());
  EXPECT_EQ(peer->uid, geteuid());
  EXPECT_EQ(peer->gid, getegid());
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
