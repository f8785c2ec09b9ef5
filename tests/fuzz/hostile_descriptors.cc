// Descriptors that a hostile client and the engine both hold.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/hostile_client.h"

namespace wherry::fuzz {
namespace {

// Blocking from now on, full, sealed, cut, with holes: what the kernel lets it.
void meddle(int fd, Dice& dice) {
  const int flags = fcntl(fd, F_GETFL);
  switch (dice.below(8)) {
    case 0:
      fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
      return;
    case 1:
      // Not where it could wait itself.
      fcntl(fd, F_SETFL, flags | O_NONBLOCK);
      eventfd_write(fd, UINT64_MAX - 1);
      fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
      return;
    case 2: {
      fcntl(fd, F_SETFL, flags | O_NONBLOCK);
      eventfd_t taken = 0;
      eventfd_read(fd, &taken);
      fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
      return;
    }
    case 3:
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
      return;
    case 4: {
      [[maybe_unused]] const int refused = ftruncate(fd, static_cast<off_t>(dice.below(8192)));
      return;
    }
    case 5:
      fcntl(fd, F_ADD_SEALS, static_cast<int>(dice.below(32)));
      return;
    case 6:
      shutdown(fd, static_cast<int>(dice.below(3)));
      return;
    default: {
      void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (mapped == MAP_FAILED) return;
      // Even the header of its own segment: the engine does not read that again.
      for (int i = 0; i < 64; ++i) {
        static_cast<uint64_t*>(mapped)[dice.below(512)] = dice.number();
      }
      munmap(mapped, 4096);
      return;
    }
  }
}

}  // namespace

void HostileClient::act_on_descriptors() {
  if (shared_.size() < 12 && dice_.one_in(3)) open_odd_channel();
  if (ended_) return;
  switch (dice_.below(4)) {
    case 0:
      return meddle(rings_->eventfd.get(), dice_);
    case 1: {
      // Its end of the control socket: the engine's end has flags of its own.
      const int fd = client_.socket().fd();
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return;
    }
    case 2:
      if (!shared_.empty() && dice_.one_in(3)) shared_.erase(shared_.begin());
      [[fallthrough]];
    default:
      if (!shared_.empty()) meddle(dice_.of(shared_).get(), dice_);
      return;
  }
}

// One whose descriptors it keeps, and may say that it has mapped: of the two segments, the eventfd
// and the socket to be woken by.
void HostileClient::open_odd_channel() {
  test::Descriptors received;
  const test::json opened = client_.call(
      "open_channel", {{"submission_slots", 8}, {"notification_slots", 0}, {"descriptor", true}},
      {}, &received);
  ended_ = opened == nullptr;
  // It may be the answer to something else to which it gave the same id.
  if (ended_ || !opened.contains("channel")) return;
  for (shm::UniqueFd& fd : received) {
    if (dice_.one_in(2)) meddle(fd.get(), dice_);
    shared_.push_back(std::move(fd));
  }
  if (dice_.one_in(2)) client_.send("channel_mapped", {{"channel", opened["channel"]}});
}

}  // namespace wherry::fuzz
