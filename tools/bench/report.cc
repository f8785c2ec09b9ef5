#include "tools/bench/report.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace wherry::bench {
namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return text;
}

}  // namespace

std::string to_json(const Figure& f) {
  return format(R"({"bench": "%s", "case": "%s", "value": %.6g, "unit": "%s", "floor": %.6g, )"
                R"("floor_name": "%s", "reach": %.4g, "n": %u, "disturbed": %u, "spread": %.4g})",
                f.bench.c_str(), f.name.c_str(), f.value, f.unit.c_str(), f.floor,
                f.floor_name.c_str(), f.reach(), f.rounds, f.disturbed, f.spread);
}

std::string table_header() {
  return format("%-5s %-38s %9s %-5s %9s %-10s %6s %4s %7s", "bench", "case", "value", "unit",
                "floor", "by", "reach", "n", "spread");
}

std::string to_row(const Figure& f) {
  return format("%-5s %-38s %9.4g %-5s %9.4g %-10s %6.2f %3u%s %5.0f %%", f.bench.c_str(),
                f.name.c_str(), f.value, f.unit.c_str(), f.floor, f.floor_name.c_str(), f.reach(),
                f.rounds, f.disturbed != 0 ? "*" : " ", 100 * f.spread);
}

Status Report::add(const Figure& figure) {
  if (!json_ && !begun_) std::printf("%s\n", table_header().c_str());
  begun_ = true;
  marked_ = marked_ || figure.disturbed != 0;
  std::printf("%s\n", (json_ ? to_json(figure) : to_row(figure)).c_str());
  if (std::fflush(stdout) == 0) return {};
  return errno_status(Code::kNoResources, "writing to standard output", errno);
}

void Report::finish() const {
  if (json_ || !marked_) return;
  std::printf(
      "* others used the cores in some of these rounds, and there were too few without: run again "
      "on a quiet machine\n");
}

}  // namespace wherry::bench
