#include "engine/control/config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/control/affinity.h"

namespace wherry::engine {
namespace {

// The problems of a text, a line each, without the line that counts them.
std::vector<std::string> problems_of(const std::string& text, const ConfigOptions& options = {}) {
  const Result<Config> config = parse_config(text, "test", options);
  std::vector<std::string> lines;
  if (config.ok()) return lines;
  EXPECT_EQ(config.code(), Code::kInvalidArgument);
  std::string message = config.status().message();
  while (!message.empty()) {
    const size_t end = message.find('\n');
    lines.push_back(message.substr(0, end));
    message = end == std::string::npos ? "" : message.substr(end + 1);
  }
  const std::string count =
      std::to_string(lines.size() - 1) + (lines.size() == 2 ? " problem" : " problems");
  EXPECT_EQ(lines[0], "config test: " + count);
  lines.erase(lines.begin());
  return lines;
}

// A text with exactly one problem: its line.
std::string problem_of(const std::string& text, const ConfigOptions& options = {}) {
  const std::vector<std::string> problems = problems_of(text, options);
  EXPECT_EQ(problems.size(), 1u) << text;
  return problems.empty() ? "none" : problems[0];
}

Config config_of(const std::string& text, const ConfigOptions& options = {}) {
  Result<Config> config = parse_config(text, "test", options);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? std::move(*config) : Config();
}

TEST(Config, AnEmptyObjectGivesTheDefaults) {
  const Config config = config_of("{}");
  EXPECT_EQ(config.name, "default");
  EXPECT_EQ(config.socket.mode, 0600u);
  EXPECT_EQ(config.default_deadline_ms, 30000u);
  ASSERT_EQ(config.pollers.size(), 1u);
  EXPECT_EQ(config.pollers[0].pin, Pin::kNone);
  EXPECT_EQ(config.pollers[0].idle, IdleStrategy::kAdaptive);
  EXPECT_TRUE(config.pollers[0].spin_us == 50 || config.pollers[0].spin_us == 200);
  EXPECT_EQ(config.channels.submission_slots, 1024u);
  EXPECT_EQ(config.limits.clients, 64u);
  EXPECT_TRUE(config.transports.memory.enabled);
  EXPECT_FALSE(config.transports.null.enabled);
}

TEST(Config, EveryProblemIsReportedAtOnceWithItsPointer) {
  const std::vector<std::string> problems = problems_of(R"({
    "name": "a/b",
    "run_dir": "relative",
    "socket": {"mode": "0066", "group": "no such group", "modus": 1},
    "default_deadline_ms": 0,
    "pollers": [{"cpu": -1, "idle": "lazy"}, {"cpu": "offset:x", "spin_us": 1.5}, 7],
    "allow_oversubscription": "yes",
    "registrars": 17,
    "channels": {"submission_slots": 1000, "notification_slots": 4},
    "limits": {"clients": "many", "channels_per_client": 0},
    "client_limits": {"bad name": {}, "good": {"clients": 1}},
    "transports": {"null": {"enabled": true}, "memory": {"piece_bytes": 1}},
    "log": {"level": "loud", "file": "x"},
    "registrar": 1
  })");
  const std::vector<std::string> pointers = {"/name",
                                             "/run_dir",
                                             "/socket/mode",
                                             "/socket/group",
                                             "/socket/modus",
                                             "/default_deadline_ms",
                                             "/pollers/0/cpu",
                                             "/pollers/0/idle",
                                             "/pollers/1/cpu",
                                             "/pollers/1/spin_us",
                                             "/pollers/2",
                                             "/allow_oversubscription",
                                             "/registrars",
                                             "/limits/clients",
                                             "/limits/channels_per_client",
                                             "/client_limits/bad name",
                                             "/client_limits/good/clients",
                                             "/channels/submission_slots",
                                             "/channels/notification_slots",
                                             "/transports/memory/piece_bytes",
                                             "/transports/null/enabled",
                                             "/log/level",
                                             "/log/file",
                                             "/registrar"};
  ASSERT_EQ(problems.size(), pointers.size());
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(problems[i].substr(0, pointers[i].size() + 2), pointers[i] + ": ");
    EXPECT_NE(problems[i].find("wanted "), std::string::npos) << problems[i];
    EXPECT_NE(problems[i].find(", got "), std::string::npos) << problems[i];
    EXPECT_NE(problems[i].find("; "), std::string::npos) << problems[i];
  }
}

TEST(Config, AProblemNamesLimitValueAndRemedy) {
  EXPECT_EQ(problem_of(R"({"registrars": 17})"),
            "/registrars: wanted an integer from 1 to 16, got 17; leave it out for 2");
  EXPECT_EQ(problem_of(R"({"limits": {"submission_slots": 3000}})"),
            "/limits/submission_slots: wanted a power of two from 8 to 65536, got 3000; leave it "
            "out for 8192");
}

TEST(Config, AnUnknownKeyNamesTheNearestKnownOne) {
  EXPECT_EQ(
      problem_of(R"({"log": {"levl": "info"}})"),
      "/log/levl: wanted a known key (level, file), got unknown key \"levl\"; did you mean level?");
  EXPECT_NE(problem_of(R"({"log": {"colour": true}})").find("; remove it"), std::string::npos);
}

TEST(Config, AKeyThatComesTwiceIsAProblem) {
  EXPECT_EQ(problem_of(R"({"pollers": [{}, {"spin_us": 1, "spin_us": 2}]})"),
            "/pollers/1/spin_us: wanted the key once, got it a second time; remove one of the two");
}

TEST(Config, ASyntaxErrorSaysWhere) {
  const std::string problem = problem_of("{\n  \"name\": \"a\"\n  \"log\": {}\n}");
  EXPECT_NE(problem.find("line 3"), std::string::npos) << problem;
  EXPECT_FALSE(parse_config("", "test").ok());
  EXPECT_FALSE(parse_config("[]", "test").ok());
  EXPECT_FALSE(parse_config("{} x", "test").ok());
}

TEST(Config, CommentsAreAllowed) {
  EXPECT_EQ(config_of("// a\n{/* b */\"name\": \"c\"}").name, "c");
}

TEST(Config, ValuesJustOutsideTheirRangeAreRefused) {
  for (const char* value :
       {"-1", "4294967296", "18446744073709551616", "1e3", "1.0", "true", "\"1\"", "null", "[]"}) {
    problem_of(std::string("{\"registrars\": ") + value + "}");
  }
}

TEST(Config, NamesThatCouldLeaveTheRunDirectoryAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "a b", "\\u0000", "\xc3\xa9"}) {
    problem_of(std::string("{\"name\": \"") + name + "\"}");
  }
  problem_of("{\"name\": \"" + std::string(65, 'a') + "\"}");
  EXPECT_EQ(config_of("{\"name\": \"" + std::string(64, 'a') + "\"}").name.size(), 64u);
}

TEST(Config, ARunDirectoryThatLeavesNoRoomForTheSocketsAddressIsRefused) {
  EXPECT_EQ(config_of("{\"run_dir\": \"/" + std::string(94, 'a') + "\"}").run_dir.size(), 95u);
  problem_of("{\"run_dir\": \"/" + std::string(95, 'a') + "\"}");
}

TEST(Config, ModesAreOctalAndLeaveTheOwnerIn) {
  EXPECT_EQ(config_of(R"({"socket": {"mode": "0666"}})").socket.mode, 0666u);
  EXPECT_EQ(config_of(R"({"socket": {"mode": "700"}})").socket.mode, 0700u);
  for (const char* mode : {"", "0", "0400", "0068", "01666", "0x600", "-600", "+600", "rw"}) {
    problem_of(std::string("{\"socket\": {\"mode\": \"") + mode + "\"}}");
  }
}

TEST(Config, AGroupOpensTheSocketToItselfUnlessTheModeContradicts) {
  EXPECT_EQ(config_of(R"({"socket": {"group": "root"}})").socket.mode, 0660u);
  const std::string problem = problem_of(R"({"socket": {"group": "root", "mode": "0600"}})");
  EXPECT_NE(problem.find("/socket/mode"), std::string::npos) << problem;
}

TEST(Config, PollersTakeCoresAbsoluteOrByOffset) {
  const Config config = config_of(R"({"pollers": [
      {"cpu": 3, "idle": "busy", "spin_us": 7}, {"cpu": "offset:1", "idle": "sleep"}, {"cpu": null}]})");
  ASSERT_EQ(config.pollers.size(), 3u);
  EXPECT_EQ(config.pollers[0].pin, Pin::kCpu);
  EXPECT_EQ(config.pollers[0].cpu, 3u);
  EXPECT_EQ(config.pollers[0].idle, IdleStrategy::kBusy);
  EXPECT_EQ(config.pollers[0].spin_us, 7u);
  EXPECT_EQ(config.pollers[1].pin, Pin::kOffset);
  EXPECT_EQ(config.pollers[1].cpu, 1u);
  EXPECT_EQ(config.pollers[2].pin, Pin::kNone);
  for (const char* cpu :
       {"1024", "1.5", "\"offset:\"", "\"offset:-1\"", "\"offset:1 \"", "\"1\"", "true"}) {
    problem_of(std::string("{\"pollers\": [{\"cpu\": ") + cpu + "}]}");
  }
}

TEST(Config, NoPollerAndTooManyAreRefused) {
  problem_of(R"({"pollers": []})");
  std::string text = "{}";
  for (int i = 1; i < 16; ++i) text += ",{}";
  EXPECT_EQ(config_of("{\"pollers\": [" + text + "]}").pollers.size(), 16u);
  problem_of("{\"pollers\": [" + text + ",{}]}");
}

TEST(Config, ExternalPollersAndTheNullTransportNeedTheirOption) {
  const std::string external = R"({"pollers": [{"idle": "external"}]})";
  problem_of(external);
  EXPECT_EQ(config_of(external, {.allow_external = true}).pollers[0].idle, IdleStrategy::kExternal);
  const std::string null = R"({"transports": {"null": {"enabled": true}}})";
  problem_of(null);
  EXPECT_TRUE(config_of(null, {.allow_null = true}).transports.null.enabled);
}

TEST(Config, OneTransportAtLeastMustBeEnabled) {
  EXPECT_EQ(problem_of(R"({"transports": {"memory": {"enabled": false}}})").substr(0, 12),
            "/transports:");
}

TEST(Config, LimitsOfAnInstanceTakeWhatTheyLeaveOutFromLimitsWhereverThoseStand) {
  const Config config = config_of(R"({
    "client_limits": {"big": {"regions_per_client": 9, "registered_bytes_per_client": 1}},
    "limits": {"regions_per_client": 5, "layouts_per_client": 6}})");
  EXPECT_EQ(config.limits_of("big").regions_per_client, 9u);
  EXPECT_EQ(config.limits_of("big").layouts_per_client, 6u);
  EXPECT_EQ(config.limits_of("big").registered_bytes_per_client, 1u);
  EXPECT_EQ(config.limits_of("other").regions_per_client, 5u);
  EXPECT_EQ(config.limits_of("other").registered_bytes_per_client, 0u);
}

TEST(Config, ADefaultChannelAboveAClientsLimitIsAProblemOfThatLimit) {
  EXPECT_EQ(problem_of(R"({"limits": {"submission_slots": 512}})").substr(0, 25),
            "/limits/submission_slots:");
  EXPECT_EQ(problem_of(R"({"client_limits": {"a": {"submission_slots": 512}}})").substr(0, 34),
            "/client_limits/a/submission_slots:");
}

TEST(Config, WhatTheHostsCoresDoNotAllowIsReportedWithTheRest) {
  const CoreSet cores{{0, 1}, 0};
  const std::vector<std::string> problems = problems_of(
      R"({"registrars": 0, "pollers": [{"cpu": 5, "idle": "busy"}, {"cpu": true, "idle": "busy"}]})",
      {.cores = &cores});
  ASSERT_EQ(problems.size(), 4u);
  EXPECT_EQ(problems[0].substr(0, 15), "/pollers/1/cpu:");
  EXPECT_EQ(problems[1].substr(0, 12), "/registrars:");
  EXPECT_EQ(problems[2].substr(0, 15), "/pollers/0/cpu:");
  EXPECT_EQ(problems[3].substr(0, 9), "/pollers:");
}

TEST(Config, TheEffectiveConfigReadsBackAsItself) {
  const Config config = config_of(R"({
    "name": "n", "run_dir": "/run/x", "socket": {"group": "root"}, "admin_group": "root",
    "pollers": [{"cpu": 3}, {"cpu": "offset:1", "idle": "sleep"}, {}],
    "client_limits": {"a": {"found_per_client": 1}}, "transports": {"memory": {"enabled": false}, "null": {"enabled": true}}})",
                                  {.allow_null = true});
  const std::string text = effective_config_json(config);
  EXPECT_EQ(effective_config_json(config_of(text, {.allow_null = true})), text);
  EXPECT_NE(text.find("\"mode\": \"0660\""), std::string::npos);
}

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "wherry-config-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~ConfigFile() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
};

TEST_F(ConfigFile, IsLoadedAndNamedInItsProblems) {
  const std::string path = dir_ + "/engine.json";
  std::ofstream(path) << R"({"name": "from-file"})";
  const Result<Config> config = load_config(path);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->name, "from-file");
  std::ofstream(path) << "{\"nam\": 1}";
  EXPECT_EQ(load_config(path).status().message().substr(0, path.size() + 8),
            "config " + path + ":");
}

TEST_F(ConfigFile, ThatIsMissingNoFileOrTooLargeIsRefused) {
  EXPECT_NE(load_config(dir_ + "/none").status().message().find("No such file"), std::string::npos);
  EXPECT_FALSE(load_config(dir_).ok());
  ASSERT_EQ(mkfifo((dir_ + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(load_config(dir_ + "/pipe").ok());
  std::ofstream(dir_ + "/large") << std::string((1 << 20) + 1, ' ');
  EXPECT_FALSE(load_config(dir_ + "/large").ok());
}

TEST(ConfigExamples, AreValid) {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WHERRY_SOURCE_DIR "/configs")) {
    const std::string path = entry.path();
    if (entry.path().extension() != ".json" || path.find(".schema.") != std::string::npos) continue;
    ++found;
    const Result<Config> config = load_config(path);
    EXPECT_TRUE(config.ok()) << config.status().to_string();
  }
  EXPECT_GE(found, 3u);
}

}  // namespace
}  // namespace wherry::engine
