#include "shm/control_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace wherry::shm {
namespace {

// First byte of every packet: where the text is.
constexpr char kInline = 'i';
constexpr char kInMemfd = 'm';  // the last descriptor holds it
// A packet that comes with a memfd is padded to this, so that the kernel, which counts only the
// packet, lets few of them wait unread.
constexpr size_t kMemfdPacketBytes = 32 * 1024;
constexpr size_t kMostDescriptorsOfAPacket = 253;  // the kernel's limit

Status unreachable(const std::string& what) { return {Code::kUnreachable, what}; }

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Status(Code::kInvalidArgument, "socket path: wanted 1 to " +
                                              std::to_string(sizeof(address.sun_path) - 1) +
                                              " bytes, got " + std::to_string(path.size()) + " (" +
                                              path + "); use a shorter run directory");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UniqueFd> text_memfd(const std::string& text) {
  UniqueFd fd(memfd_create("wherry-message", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid())
    return errno_status(Code::kNoResources, "making a memfd for a long message", errno);
  if (pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return errno_status(Code::kNoResources, "writing a memfd for a long message", errno);
  }
  return fd;
}

// Reads a long text. Only a sealed memfd: any other file could change, or block, under the read.
Result<std::string> read_text_memfd(int fd) {
  const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info {};
  if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &info) != 0) {
    return Status(Code::kInvalidArgument,
                  "long control message: wanted a memfd sealed against write, shrink and grow, "
                  "got another descriptor; seal it before sending");
  }
  if (static_cast<uint64_t>(info.st_size) > kMaxPayloadBytes) {
    return Status(Code::kInvalidArgument, "long control message: wanted at most " +
                                              std::to_string(kMaxPayloadBytes) + " bytes, got " +
                                              std::to_string(info.st_size) + "; send less at once");
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  if (pread(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return errno_status(Code::kInvalidArgument, "reading a long control message", errno);
  }
  return text;
}

}  // namespace

Result<ControlSocket> ControlSocket::connect(const std::string& path) {
  Result<sockaddr_un> address = address_of(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_status(Code::kNoResources, "creating a socket", errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    const int error = errno;
    const char* remedy = error == ENOENT ? "; is the engine running, and is this its run directory?"
                         : error == ECONNREFUSED
                             ? "; the engine is not running (it left its socket behind)"
                         : error == EACCES ? "; the socket's mode and group do not let this user in"
                         : error == EAGAIN ? "; the engine's backlog is full, try again"
                                           : "";
    return Status(
        Code::kUnreachable,
        errno_status(Code::kUnreachable, "connecting to " + path, error).message() + remedy);
  }
  return ControlSocket(std::move(fd));
}

Status ControlSocket::send(std::string text, std::vector<UniqueFd> descriptors) {
  const size_t bytes = text.size();
  if (queue_.size() >= kMaxQueued || (!queue_.empty() && queued_bytes_ + bytes > kMaxQueuedBytes)) {
    return {Code::kNoResources, "control socket: wanted the other side to read, got " +
                                    std::to_string(queue_.size()) + " messages of " +
                                    std::to_string(queued_bytes_) +
                                    " bytes waiting; the connection should be closed"};
  }
  if (text.size() > kMaxPayloadBytes || descriptors.size() >= kMaxDescriptors) {
    return {Code::kInvalidArgument, "control message: wanted at most " +
                                        std::to_string(kMaxPayloadBytes) + " bytes and " +
                                        std::to_string(kMaxDescriptors - 1) + " descriptors, got " +
                                        std::to_string(text.size()) + " and " +
                                        std::to_string(descriptors.size()) + "; send less at once"};
  }
  ControlMessage message;
  message.descriptors = std::move(descriptors);
  if (text.size() <= kMaxInlineBytes) {
    message.text = kInline + std::move(text);
  } else {
    Result<UniqueFd> memfd = text_memfd(text);
    if (!memfd.ok()) return memfd.status();
    message.text.assign(kMemfdPacketBytes, '\0');
    message.text.front() = kInMemfd;
    message.descriptors.push_back(std::move(*memfd));
  }
  queue_.push_back({std::move(message), bytes});
  queued_bytes_ += bytes;
  return flush();
}

Status ControlSocket::flush() {
  while (!queue_.empty()) {
    bool sent = false;
    if (Status status = send_now(queue_.front().message, &sent); !status.ok()) return status;
    if (!sent) return {};
    queued_bytes_ -= queue_.front().bytes;
    queue_.pop_front();
  }
  return {};
}

bool ControlSocket::other_side_reads() const {
  pollfd writable{fd_.get(), POLLOUT, 0};
  return queue_.empty() && poll(&writable, 1, 0) == 1;
}

Status ControlSocket::send_now(const ControlMessage& message, bool* sent) {
  iovec part{const_cast<char*>(message.text.data()), message.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!message.descriptors.empty()) {
    const size_t bytes = message.descriptors.size() * sizeof(int);
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(bytes);
    auto* out = reinterpret_cast<int*>(CMSG_DATA(item));
    for (size_t i = 0; i < message.descriptors.size(); ++i) out[i] = message.descriptors[i].get();
  }
  if (sendmsg(fd_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
    *sent = true;
    return {};
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return unreachable(std::string("control socket: the other side is gone (") + strerror(errno) +
                     ")");
}

Result<std::optional<ControlMessage>> ControlSocket::receive() {
  std::string buffer(kMaxInlineBytes + 1, '\0');
  iovec part{buffer.data(), buffer.size()};
  // Room for as many as there can be: those without room would be closed here and now.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptorsOfAPacket * sizeof(int))> control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == ECONNRESET) {
    // Said once, when the other side hung up without having read all of ours; what it sent before
    // that is still to be read.
    got = recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
      return std::optional<ControlMessage>();
    return unreachable(std::string("control socket: the other side is gone (") + strerror(errno) +
                       ")");
  }
  ControlMessage message;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const auto* in = reinterpret_cast<const int*>(CMSG_DATA(item));
    for (size_t i = 0; i < count; ++i) message.descriptors.emplace_back(in[i]);
  }
  if (got == 0) {
    discard(std::move(message.descriptors));
    return unreachable("control socket: the other side has hung up");
  }
  const bool too_many = message.descriptors.size() > kMaxDescriptors;
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || too_many) {
    discard(std::move(message.descriptors));
    return Status(Code::kInvalidArgument,
                  "control message: wanted at most " + std::to_string(kMaxInlineBytes) +
                      " bytes and " + std::to_string(kMaxDescriptors) +
                      " descriptors in a packet, got more; pass long texts as a memfd");
  }
  buffer.resize(static_cast<size_t>(got));
  if (buffer[0] == kInMemfd && !message.descriptors.empty()) {
    Result<std::string> text = read_text_memfd(message.descriptors.back().get());
    if (!text.ok()) {
      discard(std::move(message.descriptors));
      return text.status();
    }
    message.descriptors.pop_back();
    message.text = std::move(*text);
  } else if (buffer[0] == kInline) {
    message.text = buffer.substr(1);
  } else {
    discard(std::move(message.descriptors));
    return Status(Code::kInvalidArgument,
                  "control message: wanted a first byte 'i' or 'm', got another; "
                  "is the other side an engine or client of ours?");
  }
  return std::optional<ControlMessage>(std::move(message));
}

Result<PeerCredentials> ControlSocket::peer() const {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return errno_status(Code::kInternal, "asking who the other side is", errno);
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<UniqueFd> listen_control(const std::string& path, mode_t mode) {
  Result<sockaddr_un> address = address_of(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_status(Code::kNoResources, "creating a socket", errno);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Status(Code::kNotPermitted, "socket " + path +
                                           ": wanted a name that is free or can be made so, got " +
                                           std::strerror(errno) + "; remove it");
  }
  // fchmod before bind sets the mode of the file that bind makes: no instant with a wider one.
  if (fchmod(fd.get(), mode) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      chmod(path.c_str(), mode) != 0 || listen(fd.get(), 128) != 0) {
    return errno_status(Code::kNoResources, "listening at " + path, errno);
  }
  return fd;
}

Result<std::optional<ControlSocket>> accept_control(int listener) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) return std::optional<ControlSocket>(ControlSocket(std::move(fd)));
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED) {
    return std::optional<ControlSocket>();
  }
  return errno_status(Code::kNoResources, "accepting a connection", errno);
}

}  // namespace wherry::shm
