#include "engine/control/foreign.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace wherry::engine {
namespace {

// One thread of the process: what blocks it blocks only the closing of more such descriptors.
class Closer {
 public:
  void put(std::vector<shm::UniqueFd> descriptors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (shm::UniqueFd& fd : descriptors) waiting_.push_back(std::move(fd));
    try {
      if (!started_) std::thread([this] { work(); }).detach();
      started_ = true;
    } catch (const std::system_error&) {
      return;  // the next one tries again
    }
    changed_.notify_one();
  }

 private:
  [[noreturn]] void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      shm::UniqueFd fd = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      fd.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<shm::UniqueFd> waiting_;  // under mutex_
  bool started_ = false;               // under mutex_
};

}  // namespace

bool is_pidfd(int fd) {
  std::array<char, 1024> text{};
  const shm::UniqueFd info(
      open(("/proc/self/fdinfo/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!info.valid()) return false;
  const ssize_t got = read(info.get(), text.data(), text.size());
  return got > 0 && std::string_view(text.data(), static_cast<size_t>(got)).find("\nPid:") !=
                        std::string_view::npos;
}

std::vector<shm::UniqueFd> take_risky(std::vector<shm::UniqueFd>& descriptors) {
  std::vector<shm::UniqueFd> risky;
  for (shm::UniqueFd& fd : descriptors) {
    // Only files in memory have seals.
    if (fcntl(fd.get(), F_GET_SEALS) >= 0 || is_pidfd(fd.get())) continue;
    risky.push_back(std::exchange(fd, shm::UniqueFd()));
  }
  return risky;
}

void close_elsewhere(std::vector<shm::UniqueFd> descriptors) {
  static auto* the_one = new Closer;  // not destroyed: its thread is never joined
  if (!descriptors.empty()) the_one->put(std::move(descriptors));
}

}  // namespace wherry::engine
