// Reading of one JSON object of the config: typed fields with limits, and every problem by its
// pointer.
//
// Used by config.cc only, in one thread. A reader keeps references to the object and the problems.
// A field that is absent or wrong leaves its target as it is. Every key asked for is known;
// finish() reports the others.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace wherry::engine {

using Json = nlohmann::json;

// The problems of a config, in the order they were found.
class Problems {
 public:
  // "<pointer>: wanted <wanted>, got <got>; <remedy>"
  void add(const std::string& pointer, const std::string& wanted, const std::string& got,
           const std::string& remedy);
  void add_line(std::string line) { lines_.push_back(std::move(line)); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// A value as messages show it: its JSON text, cut when long.
std::string shown(const Json& value);

class ObjectReader {
 public:
  // A value that is no object is a problem, and then reads as an empty one.
  ObjectReader(const Json& value, std::string pointer, Problems* problems);

  // The member as it is, or null when absent.
  const Json* member(std::string_view key);
  std::string pointer(std::string_view key) const;

  void boolean(std::string_view key, bool* out);
  void integer(std::string_view key, uint64_t low, uint64_t high, uint64_t* out);
  void integer(std::string_view key, uint32_t low, uint32_t high, uint32_t* out);
  // A power of two in [low, high].
  void power_of_two(std::string_view key, uint32_t low, uint32_t high, uint32_t* out);
  // A text that `good` accepts; `wanted` says which do.
  using TextCheck = std::function<bool(const std::string&)>;
  void text(std::string_view key, const TextCheck& good, const std::string& wanted,
            const std::string& remedy, std::string* out);
  // Calls `read` with a reader of the member when it is there, and finishes that.
  void object(std::string_view key, const std::function<void(ObjectReader&)>& read);

  // Unknown keys, each with the nearest known one.
  void finish();

  Problems* problems() const { return problems_; }

 private:
  const Json& object_;
  std::string pointer_;
  Problems* problems_;
  std::vector<std::string> known_;
};

// Parses a text with comments into a document; a syntax error and repeated keys are problems. False
// when there is no document.
bool parse_document(std::string_view text, Json* document, Problems* problems);

}  // namespace wherry::engine
