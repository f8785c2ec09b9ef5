// Runs a fuzz target over its corpus, and over that many seeded mutations of it: for builds without
// libFuzzer.
//   fuzz_NAME CORPUS_DIR COUNT    a tenth of COUNT unless WHERRY_LONG is set
// What fails is printed in hex, with the seed that makes it the first mutation of the next run.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_check.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#if defined(__SANITIZE_ADDRESS__)
// What a sanitizer finds ends the process by a signal too.
extern "C" const char* __asan_default_options() { return "abort_on_error=1:handle_abort=0"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }
#endif

namespace wherry::fuzz {
namespace {

constexpr size_t kMaxInput = 8192;

// Read by the signal handler.
std::string input;
std::string name;

void say(const std::string& text) {
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

// Not safe in a signal handler by the book; the process is lost anyway, and mostly it works.
void on_crash(int number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : input) {
    hex += kDigits[static_cast<uint8_t>(c) >> 4];
    hex += kDigits[static_cast<uint8_t>(c) & 15];
  }
  say("signal " + std::to_string(number) + " in " + name + ", input:\n" + hex + "\n");
  signal(number, SIG_DFL);
  raise(number);
}

void run(std::string bytes, const std::string& called) {
  input = std::move(bytes);
  name = called;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::string mutated(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  std::string text = corpus[random() % corpus.size()];
  const auto at = [&] { return text.empty() ? 0 : random() % text.size(); };
  for (uint64_t changes = 1 + random() % 6; changes != 0; --changes) {
    switch (random() % 8) {
      case 0:
        if (!text.empty()) text[at()] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        if (!text.empty()) text[at()] = static_cast<char>(random());
        break;
      case 2:  // another digit or letter: what texts are made of
        if (!text.empty()) text[at()] = static_cast<char>('0' + random() % 75);
        break;
      case 3:
        text.insert(at(), 1 + random() % 4, static_cast<char>(random()));
        break;
      case 4:
        text.erase(at(), 1 + random() % 8);
        break;
      case 5:  // a piece once more
        if (!text.empty()) text.insert(at(), text.substr(at(), 1 + random() % 32));
        break;
      case 6: {  // a piece of another
        const std::string& other = corpus[random() % corpus.size()];
        if (!other.empty())
          text.insert(at(), other.substr(random() % other.size(), 1 + random() % 64));
        break;
      }
      case 7: {  // a number at the edge of something
        static constexpr std::array<const char*, 6> kNumbers = {
            "18446744073709551615", "4294967296", "-1", "9223372036854775808", "1e9", "0"};
        const size_t digit = text.find_first_of("0123456789", at());
        if (digit != std::string::npos)
          text.replace(digit, 1, kNumbers[random() % kNumbers.size()]);
        break;
      }
    }
  }
  if (text.size() > kMaxInput) text.resize(kMaxInput);
  return text;
}

int replay(const std::string& directory, uint64_t count) {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, on_crash);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // a seed means the same on every machine
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    run(corpus.back(), path);
  }
  if (corpus.empty()) {
    std::cerr << "no corpus in " << directory << "\n";
    return 1;
  }
  const uint64_t first = seed();
  const uint64_t last = first + test::counted(count);
  std::cout << corpus.size() << " files; mutations, WHERRY_FUZZ_SEED=" << first << std::endl;
  for (uint64_t each = first; each != last; ++each) {
    std::mt19937_64 random(each);
    run(mutated(corpus, random), "mutation WHERRY_FUZZ_SEED=" + std::to_string(each));
  }
  std::cout << last - first << " mutations\n";
  return 0;
}

}  // namespace
}  // namespace wherry::fuzz

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " CORPUS_DIR COUNT\n";
    return 2;
  }
  return wherry::fuzz::replay(argv[1], std::strtoull(argv[2], nullptr, 10));
}
