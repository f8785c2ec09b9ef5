// JSON, as much of it as the control protocol needs, without a tree of nodes: a layout may have
// many thousand parts, and a tree cannot even be taken down without memory. Internal.
//
// Plain values of one thread each. What throws is std::bad_alloc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace wherry::detail {

// Writes the members of one object, in the order of the calls.
class JsonWriter {
 public:
  JsonWriter& number(std::string_view key, uint64_t value);
  JsonWriter& boolean(std::string_view key, bool value);
  // Bytes that are no UTF-8 become question marks.
  JsonWriter& text(std::string_view key, std::string_view value);
  JsonWriter& texts(std::string_view key, const std::vector<std::string>& values);
  // `json` is a value already.
  JsonWriter& raw(std::string_view key, std::string_view json);
  JsonWriter& object(std::string_view key, const JsonWriter& value);

  // "name":value,... without the braces.
  const std::string& members() const { return members_; }

 private:
  void begin(std::string_view key);

  std::string members_;
};

// The scalars of a document, and its lists of numbers, by path: "limits/default_deadline_ms",
// "transports/0/name", "parts". Lists of other things only have paths with an index.
class JsonReader {
 public:
  // False when the text is no JSON object.
  static bool parse(const std::string& text, JsonReader* reader);

  // Null when there is no such value of that type; numbers are whole ones.
  const uint64_t* number(const std::string& path) const;
  const int64_t* negative(const std::string& path) const;
  const bool* boolean(const std::string& path) const;
  const std::string* text(const std::string& path) const;
  const std::vector<uint64_t>* numbers(const std::string& path) const;

 private:
  struct Handler;

  std::map<std::string, uint64_t> numbers_;
  std::map<std::string, int64_t> negatives_;
  std::map<std::string, bool> booleans_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::vector<uint64_t>> lists_;
};

}  // namespace wherry::detail
