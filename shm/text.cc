#include "shm/text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

namespace wherry::shm {

std::string utc_text(uint64_t wall_ns) {
  const auto seconds = static_cast<time_t>(wall_ns / 1'000'000'000);
  const auto millis = static_cast<unsigned>(wall_ns / 1'000'000 % 1000);
  struct tm parts {};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> date;
  strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%s.%03uZ", date.data(), millis);
  return text.data();
}

std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return result;
}

}  // namespace wherry::shm
