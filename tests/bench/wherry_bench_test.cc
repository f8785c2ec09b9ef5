// wherry-bench as a person runs it: what it prints, how it ends, and that nothing stays behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "shm/file_descriptor.h"
#include "tests/temporary_directory.h"

namespace wherry::tests {
namespace {

// A run of the program, in a process group and with a run directory of its own.
class BenchRun {
 public:
  explicit BenchRun(const std::vector<std::string>& arguments) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_.reset(ends[0]);
    const shm::UniqueFd child_end(ends[1]);
    std::vector<std::string> words = {WHERRY_BIN_DIR "/wherry-bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      setenv("WHERRY_RUN_DIR", directory_.path().c_str(), 1);
      dup2(child_end.get(), STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    setpgid(pid_, pid_);
    group_ = pid_;
    EXPECT_GT(pid_, 0);
  }
  // A poller that stayed behind would spin for ever.
  ~BenchRun() {
    if (group_ > 0) kill(-group_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  // The next line it prints; false at the end.
  bool read_line(std::string* line) {
    line->clear();
    char letter = 0;
    while (read(output_.get(), &letter, 1) == 1) {
      if (letter == '\n') return true;
      *line += letter;
    }
    return !line->empty();
  }

  std::vector<std::string> rest() {
    std::vector<std::string> lines;
    for (std::string line; read_line(&line);) lines.push_back(line);
    return lines;
  }

  void interrupt() const {
    if (group_ > 0) kill(-group_, SIGINT);
  }
  void stop_reading() { output_.reset(); }

  // Its exit status, once it has ended; -1 when a signal killed it.
  int wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // After wait().
  bool left_a_process() const { return group_ > 0 && (kill(-group_, 0) == 0 || errno != ESRCH); }
  bool left_a_file() const { return !std::filesystem::is_empty(directory_.path()); }

 private:
  TemporaryDirectory directory_;
  shm::UniqueFd output_;
  pid_t pid_ = -1;
  pid_t group_ = -1;
};

void expect_figure(const std::string& line) {
  SCOPED_TRACE(line);
  const nlohmann::json figure = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(figure.is_object());
  for (const char* key : {"bench", "case", "unit", "floor_name"}) {
    ASSERT_TRUE(figure.contains(key) && figure[key].is_string()) << key;
    EXPECT_FALSE(figure[key].get<std::string>().empty()) << key;
  }
  for (const char* key : {"value", "floor", "reach", "n", "disturbed", "spread"}) {
    ASSERT_TRUE(figure.contains(key) && figure[key].is_number()) << key;
  }
  for (const char* key : {"value", "floor", "reach", "n"}) EXPECT_GT(figure[key], 0) << key;
  EXPECT_GE(figure["spread"], 0);
  EXPECT_LE(figure["disturbed"], figure["n"]);
  EXPECT_EQ(figure.size(), 10u);
  const double value = figure["value"];
  const double floor = figure["floor"];
  const double reach = figure["unit"] == "ns" ? floor / value : value / floor;
  EXPECT_NEAR(figure["reach"].get<double>() / reach, 1, 0.01);
}

TEST(WherryBench, AQuickRunPrintsEachFigureBesideItsFloorAndLeavesNothing) {
  BenchRun bench({"--quick", "--json"});
  std::set<std::string> cases;
  for (const std::string& line : bench.rest()) {
    expect_figure(line);
    const nlohmann::json figure = nlohmann::json::parse(line, nullptr, false);
    if (!figure.is_object()) continue;
    const std::string name = std::string(figure["bench"]) + " " + std::string(figure["case"]);
    EXPECT_TRUE(cases.insert(name).second) << "twice: " << name;
  }
  EXPECT_EQ(bench.wait(), 0);
  const bool two_cores = cases.count("ring rtt/two_cores/p50") != 0;
  // Percentiles of each way to place engine and client; two loads; warm and cold, three pairs of
  // layouts, three sizes, two numbers in flight, and a copy thread; two sizes; two crowds and a
  // flood.
  const size_t ring = two_cores ? 2 * 3 : 2;
  EXPECT_EQ(cases.size(), ring + 2 + 2 * 3 * 3 * 2 + (two_cores ? 1 : 0) + 2 * 2 + (2 * 2 + 2));
  EXPECT_EQ(cases.count("copy cold/fc-fc/65536/32"), 1u);
  EXPECT_EQ(cases.count("copy warm/fc-ls_block_second/4096/1"), 1u);
  EXPECT_EQ(cases.count("ring rtt/one_core/p50"), 1u);
  EXPECT_EQ(cases.count("rate pairs/1024"), 1u);
  EXPECT_EQ(cases.count("local warm/4096/32/per_block/p50"), 1u);
  EXPECT_EQ(cases.count("fair jain/4"), 1u);
  EXPECT_FALSE(bench.left_a_process());
  EXPECT_FALSE(bench.left_a_file());
}

TEST(WherryBench, AnInterruptedRunKeepsItsFiguresAndLeavesNothing) {
  BenchRun bench({"--quick", "--rounds", "60", "copy", "--json"});
  std::string first;
  // One figure says that everything is under way, far from its end.
  ASSERT_TRUE(bench.read_line(&first));
  expect_figure(first);
  bench.interrupt();
  bench.rest();
  EXPECT_EQ(bench.wait(), 3);
  EXPECT_FALSE(bench.left_a_process());
  EXPECT_FALSE(bench.left_a_file());
}

TEST(WherryBench, ARunThatFailsSaysSoAndLeavesNothing) {
  // Nobody reads the figures.
  BenchRun unread({"--quick", "ring"});
  unread.stop_reading();
  EXPECT_EQ(unread.wait(), 1);
  EXPECT_FALSE(unread.left_a_process());
  EXPECT_FALSE(unread.left_a_file());

  // No machine has memory for such pools.
  BenchRun large({"--quick", "--pool", "1T", "copy"});
  EXPECT_TRUE(large.rest().empty());
  EXPECT_EQ(large.wait(), 1);
  EXPECT_FALSE(large.left_a_process());
  EXPECT_FALSE(large.left_a_file());
}

TEST(WherryBench, WrongOptionsEndItBeforeAnythingStarts) {
  BenchRun unknown({"no_such_benchmark"});
  EXPECT_EQ(unknown.wait(), 2);
  BenchRun cores({"--quick", "ring", "--cores", "100000,100001"});
  EXPECT_EQ(cores.wait(), 1);
  EXPECT_FALSE(cores.left_a_file());
  BenchRun help({"--help"});
  EXPECT_FALSE(help.rest().empty());
  EXPECT_EQ(help.wait(), 0);
}

}  // namespace
}  // namespace wherry::tests
