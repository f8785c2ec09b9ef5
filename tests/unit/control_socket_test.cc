#include "shm/control_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
  alignas(cmsghdr) std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
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
    Status status = there_.receive().status();
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
  // What stands behind the first byte is padding.
  const ssize_t bytes = recv(there_.fd(), packet.data(), packet.size(), 0);
  EXPECT_GE(bytes, 1);
  EXPECT_LE(bytes, static_cast<ssize_t>(kMaxInlineBytes + 1));
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

TEST_F(Socket, LongTextsThatNobodyReadsAreBoundedByTheirBytes) {
  constexpr size_t kText = 4 << 20;
  for (int round = 0; round < 2; ++round) {  // what was read makes room for as much again
    Status status;
    size_t taken = 0;
    while (status.ok()) {
      std::string text(kText, 'x');
      text.replace(0, 3, std::to_string(100 + taken));
      status = here_.send(std::move(text));
      if (status.ok()) ++taken;
      ASSERT_LT(taken * kText, 4 * ControlSocket::kMaxQueuedBytes);
    }
    EXPECT_EQ(status.code(), Code::kNoResources);
    EXPECT_GE(taken * kText, ControlSocket::kMaxQueuedBytes);
    for (size_t i = 0; i < taken; ++i) {
      const ControlMessage message = take();
      ASSERT_EQ(message.text.size(), kText);
      ASSERT_EQ(message.text.substr(0, 3), std::to_string(100 + i));
      ASSERT_TRUE(here_.flush().ok());
    }
    EXPECT_FALSE(here_.wants_write());
  }
  // One text alone is never too much.
  ASSERT_TRUE(here_.send(std::string(kMaxPayloadBytes, 'y')).ok());
  EXPECT_EQ(take().text.size(), kMaxPayloadBytes);
}

TEST_F(Socket, AReaderThatNeverReadsHoldsFewLongTextsAndABoundedQueueOfThem) {
  const std::string text(kMaxPayloadBytes, 'x');
  Status status;
  size_t taken = 0;
  for (; status.ok() && taken < 100; ++taken) status = here_.send(text);
  EXPECT_EQ(status.code(), Code::kNoResources);
  EXPECT_LE(taken - 1, ControlSocket::kMaxQueuedBytes / kMaxPayloadBytes + 8) << "in the kernel";
}

TEST_F(Socket, WhetherTheOtherSideReadsIsToldByWhatIsUnread) {
  EXPECT_TRUE(here_.other_side_reads());
  size_t sent = 0;
  for (; here_.other_side_reads(); ++sent) ASSERT_TRUE(here_.send("message").ok());
  EXPECT_FALSE(here_.wants_write()) << "well before the queue is used";
  while (sent-- > 0) take();
  EXPECT_TRUE(here_.other_side_reads());
}

std::vector<UniqueFd> discarded;

TEST_F(Socket, DescriptorsOfARefusedMessageAreHandedToWhoeverWantsThem) {
  const UniqueFd fd = memfd("text", 0);
  there_.discard_with([](std::vector<UniqueFd> descriptors) {
    for (UniqueFd& each : descriptors) discarded.push_back(std::move(each));
  });
  size_t expected = 0;
  for (const auto& [packet, count] :
       std::vector<std::pair<std::string, size_t>>{{"x", 2}, {"m", 1}, {"itext", 60}, {"", 3}}) {
    // An empty packet is as good as a hang-up.
    send_raw(here_.fd(), packet, std::vector<int>(count, fd.get()));
    EXPECT_FALSE(there_.receive().ok());
    expected += count;
    EXPECT_EQ(discarded.size(), expected) << packet;
  }
  discarded.clear();
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

}  // namespace
}  // namespace wherry::shm
