// Any bytes as a config: refused with a line for each problem, or accepted, and then the values
// that hold read back as themselves.
#include <sstream>
#include <string_view>

#include "engine/control/affinity.h"
#include "engine/control/config.h"
#include "tests/fuzz/fuzz_check.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wherry;
  using fuzz::check;
  engine::CoreSet cores;
  cores.allowed = {0, 1, 2, 3, 9};
  engine::ConfigOptions options;
  options.allow_null = size % 2 == 0;
  options.cores = &cores;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<engine::Config> config = engine::parse_config(text, "fuzz", options);
  if (!config.ok()) {
    check(config.code() == Code::kInvalidArgument, "a bad config is INVALID_ARGUMENT");
    std::istringstream lines(config.status().message());
    std::string line;
    std::getline(lines, line);
    check(line.starts_with("config fuzz: "), "the first line names the config: " + line);
    uint32_t problems = 0;
    for (; std::getline(lines, line); ++problems) {
      check(line.find("wanted ") != std::string::npos, "a line says what is wanted: " + line);
    }
    check(problems != 0, "there is a line for a problem");
    return 0;
  }
  const std::string effective = engine::effective_config_json(*config);
  const Result<engine::Config> again = engine::parse_config(effective, "again", options);
  check(again.ok(), "the effective config is one: " + again.status().to_string());
  check(engine::effective_config_json(*again) == effective, "it reads back as itself");
  return 0;
}
