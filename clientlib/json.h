// JSON, as much of it as the control protocol needs, without a tree of nodes: a layout may have
// many thousand parts, and a tree cannot even be taken down without memory. Internal.
//
// Plain values of one thread each. What throws is std::bad_alloc.
#pragma once

#include <cstdint>
#include <functional>
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

  // Null when there is no such value of that type; numbers are whole ones. Looking does not throw.
  const uint64_t* number(std::string_view path) const noexcept;
  const int64_t* negative(std::string_view path) const noexcept;
  const bool* boolean(std::string_view path) const noexcept;
  const std::string* text(std::string_view path) const noexcept;
  std::vector<uint64_t>* numbers(std::string_view path) noexcept;

 private:
  struct Handler;
  template <typename Value>
  using ByPath = std::map<std::string, Value, std::less<>>;

  ByPath<uint64_t> numbers_;
  ByPath<int64_t> negatives_;
  ByPath<bool> booleans_;
  ByPath<std::string> texts_;
  ByPath<std::vector<uint64_t>> lists_;
};

}  // namespace wherry::detail
