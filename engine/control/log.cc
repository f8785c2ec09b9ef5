#include "engine/control/log.h"

#include <spdlog/spdlog.h>

#include <mutex>

#include "engine/control/timers.h"

namespace wherry::engine {

void log_info(const std::string& line) { spdlog::info("{}", line); }
void log_warning(const std::string& line) { spdlog::warn("{}", line); }
void log_error(const std::string& line) { spdlog::error("{}", line); }

void log_client(const std::string& line) {
  // Several engines may live in one process, in tests.
  static std::mutex mutex;
  static uint64_t second = 0;
  static int lines = 0;
  static uint64_t left_out = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const uint64_t now = monotonic_ns() / 1'000'000'000;
  if (now != second) {
    if (left_out != 0) spdlog::warn("{} lines about clients left out", left_out);
    second = now;
    lines = 0;
    left_out = 0;
  }
  if (++lines > kClientLinesPerSecond) {
    ++left_out;
    return;
  }
  spdlog::info("{}", line);
}

}  // namespace wherry::engine
