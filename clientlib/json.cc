#include "clientlib/json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace wherry::detail {
namespace {

// Bytes of the UTF-8 character that begins at `at`, 0 where none does.
size_t character_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  // Too long for what they say, a surrogate, or past the last character.
  const unsigned second = byte(at + 1);
  const bool odd = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                   (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return odd ? 0 : bytes;
}

void append_quoted(std::string* out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  *out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text, at);
    const auto first = static_cast<unsigned char>(text[at]);
    if (bytes == 0) {
      *out += '?';
    } else if (first < 0x20) {
      *out += "\\u00";
      *out += kHex[first >> 4];
      *out += kHex[first & 15];
    } else {
      if (first == '"' || first == '\\') *out += '\\';
      out->append(text.substr(at, bytes));
    }
    at += std::max<size_t>(bytes, 1);
  }
  *out += '"';
}

template <typename Map>
auto find_in(Map& map, std::string_view path) -> decltype(&map.begin()->second) {
  const auto found = map.find(path);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

void JsonWriter::begin(std::string_view key) {
  if (!members_.empty()) members_ += ',';
  append_quoted(&members_, key);
  members_ += ':';
}

JsonWriter& JsonWriter::number(std::string_view key, uint64_t value) {
  return raw(key, std::to_string(value));
}

JsonWriter& JsonWriter::boolean(std::string_view key, bool value) {
  return raw(key, value ? "true" : "false");
}

JsonWriter& JsonWriter::text(std::string_view key, std::string_view value) {
  begin(key);
  append_quoted(&members_, value);
  return *this;
}

JsonWriter& JsonWriter::texts(std::string_view key, const std::vector<std::string>& values) {
  begin(key);
  members_ += '[';
  for (const std::string& value : values) {
    if (members_.back() != '[') members_ += ',';
    append_quoted(&members_, value);
  }
  members_ += ']';
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view key, std::string_view json) {
  begin(key);
  members_ += json;
  return *this;
}

JsonWriter& JsonWriter::object(std::string_view key, const JsonWriter& value) {
  begin(key);
  members_ += '{';
  members_ += value.members();
  members_ += '}';
  return *this;
}

// What the parser finds, in its order.
struct JsonReader::Handler {
  struct Level {
    bool array = false;
    size_t index = 0;       // of the next element
    size_t path_bytes = 0;  // the container's own path
  };

  bool null() {
    return value([](const std::string&) {});
  }
  bool boolean(bool found) {
    return value([&](const std::string& at) { reader->booleans_[at] = found; });
  }
  bool number_integer(int64_t found) {
    return value([&](const std::string& at) { reader->negatives_[at] = found; });
  }
  bool number_unsigned(uint64_t found) {
    if (!levels.empty() && levels.back().array) {
      path.resize(levels.back().path_bytes);
      reader->lists_[path].push_back(found);
      return true;
    }
    return value([&](const std::string& at) { reader->numbers_[at] = found; });
  }
  bool number_float(double, const std::string&) { return null(); }
  bool string(std::string& found) {
    return value([&](const std::string& at) { reader->texts_[at] = std::move(found); });
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return start(false); }
  bool start_array(size_t) { return start(true); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    path.resize(levels.back().path_bytes);
    if (!path.empty()) path += '/';
    path += name;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) { return false; }

  // In a list the path of an element is its index.
  void step() {
    if (levels.empty() || !levels.back().array) return;
    path.resize(levels.back().path_bytes);
    path += '/';
    path += std::to_string(levels.back().index++);
  }
  template <typename Store>
  bool value(const Store& store) {
    if (levels.empty()) return false;  // no object
    step();
    store(path);
    return true;
  }
  bool start(bool array) {
    if (levels.empty() ? array : levels.size() == kMaxLevels) return false;
    step();
    levels.push_back({array, 0, path.size()});
    if (array) reader->lists_[path];
    return true;
  }
  bool end() {
    levels.pop_back();
    return true;
  }

  static constexpr size_t kMaxLevels = 8;

  JsonReader* reader;
  std::string path;
  std::vector<Level> levels;
};

bool JsonReader::parse(const std::string& text, JsonReader* reader) {
  *reader = JsonReader();
  Handler handler{reader, {}, {}};
  return nlohmann::json::sax_parse(text, &handler);
}

const uint64_t* JsonReader::number(std::string_view path) const noexcept {
  return find_in(numbers_, path);
}
const int64_t* JsonReader::negative(std::string_view path) const noexcept {
  return find_in(negatives_, path);
}
const bool* JsonReader::boolean(std::string_view path) const noexcept {
  return find_in(booleans_, path);
}
const std::string* JsonReader::text(std::string_view path) const noexcept {
  return find_in(texts_, path);
}
std::vector<uint64_t>* JsonReader::numbers(std::string_view path) noexcept {
  return find_in(lists_, path);
}

}  // namespace wherry::detail
