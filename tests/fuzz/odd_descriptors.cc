#include "tests/fuzz/odd_descriptors.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <string>

#include "shm/segment.h"

namespace wherry::fuzz {
namespace {

constexpr uint64_t kPage = 4096;

shm::UniqueFd opened(const char* path, int flags) {
  return shm::UniqueFd(open(path, flags | O_CLOEXEC));
}

// One end; the other is closed.
shm::UniqueFd pipe_end(Dice& dice) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const uint64_t kept = dice.below(2);
  close(ends[1 - kept]);
  return shm::UniqueFd(ends[kept]);
}

// Non-blocking or not, and connected to nobody any more.
shm::UniqueFd socket_end(Dice& dice) {
  int ends[2];
  const int type = dice.one_in(2) ? SOCK_STREAM : SOCK_SEQPACKET;
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return {};
  close(ends[1]);
  return shm::UniqueFd(ends[0]);
}

// With any seals, any size, and perhaps a hole.
shm::UniqueFd odd_memfd(Dice& dice) {
  const unsigned sealing = dice.one_in(4) ? 0 : MFD_ALLOW_SEALING;
  shm::UniqueFd fd(memfd_create("odd", MFD_CLOEXEC | sealing));
  const auto bytes =
      static_cast<off_t>(dice.of(std::to_array<uint64_t>({0, 1, kPage - 1, kPage, 64 * kPage})));
  [[maybe_unused]] int ignored = ftruncate(fd.get(), bytes);
  if (bytes != 0 && dice.one_in(2)) ignored = posix_fallocate(fd.get(), 0, bytes);
  if (bytes > 1 && dice.one_in(3)) {
    fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes / 2);
  }
  fcntl(fd.get(), F_ADD_SEALS, static_cast<int>(dice.below(32)));
  return fd;
}

// Good memory through a descriptor that allows less, or nothing.
shm::UniqueFd reopened_memory(Dice& dice) {
  const Result<shm::UniqueFd> memory = shm::create_memory("odd", 4 * kPage);
  if (!memory.ok()) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(memory->get());
  return opened(path.c_str(),
                dice.of(std::to_array({O_RDONLY, O_WRONLY, O_PATH, O_RDWR | O_APPEND})));
}

shm::UniqueFd watcher(Dice& dice) {
  sigset_t none;
  sigemptyset(&none);
  switch (dice.below(5)) {
    case 0:
      return shm::UniqueFd(eventfd(static_cast<unsigned>(dice.below(2)), EFD_CLOEXEC));
    case 1:
      return shm::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    case 2:
      return shm::UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    case 3:
      return shm::UniqueFd(signalfd(-1, &none, SFD_CLOEXEC));
    default:
      return shm::UniqueFd(inotify_init1(IN_CLOEXEC));
  }
}

}  // namespace

shm::UniqueFd odd_descriptor(Dice& dice) {
  switch (dice.below(9)) {
    case 0:
      return pipe_end(dice);
    case 1:
      return socket_end(dice);
    case 2:
    case 3:
      return odd_memfd(dice);
    case 4:
      return reopened_memory(dice);
    case 5:
      return watcher(dice);
    case 6:
      return opened(
          dice.of(std::to_array({"/", "/dev/zero", "/dev/null", "/proc/self/maps", "/dev/full"})),
          dice.one_in(3) ? O_PATH : O_RDONLY);
    case 7:
      return opened("/dev/shm", O_TMPFILE | O_RDWR);
    default:
      return shm::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  }
}

}  // namespace wherry::fuzz
