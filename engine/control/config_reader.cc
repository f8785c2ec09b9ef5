#include "engine/control/config_reader.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace wherry::engine {
namespace {

constexpr size_t kMaxShown = 60;

// A key as a part of a JSON pointer, on one line.
std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", byte);
      text += code;
      continue;
    }
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row[b.size()];
}

// The known key that was probably meant; empty when none is near.
std::string nearest(std::string_view key, const std::vector<std::string>& known) {
  size_t best = std::max<size_t>(2, key.size() / 3) + 1;
  std::string name;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(key, candidate);
    if (distance >= best) continue;
    best = distance;
    name = candidate;
  }
  return name;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Follows a parse and reports keys that come twice in one object: the parser would keep the last
// one.
class RepeatedKeys {
 public:
  explicit RepeatedKeys(Problems* problems) : problems_(problems) {}

  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::key) {
      Level& level = levels_.back();
      level.step = escaped(parsed.get_ref<const std::string&>());
      if (!level.keys.insert(level.step).second) {
        problems_->add(pointer(), "the key once", "it a second time", "remove one of the two");
      }
    } else if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else {
      if (!levels_.empty() && levels_.back().array)
        levels_.back().step = std::to_string(levels_.back().next++);
      if (event == Event::object_start) levels_.push_back({});
      if (event == Event::array_start) levels_.push_back({.array = true});
    }
    return true;
  }

 private:
  struct Level {
    bool array = false;
    size_t next = 0;
    std::string step = {};
    std::set<std::string> keys = {};
  };

  std::string pointer() const {
    std::string text;
    for (const Level& level : levels_) text += "/" + level.step;
    return text;
  }

  Problems* problems_;
  std::vector<Level> levels_;
};

}  // namespace

void Problems::add(const std::string& pointer, const std::string& wanted, const std::string& got,
                   const std::string& remedy) {
  add_line((pointer.empty() ? "the document" : pointer) + ": wanted " + wanted + ", got " + got +
           "; " + remedy);
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

ObjectReader::ObjectReader(const Json& value, std::string pointer, Problems* problems)
    : object_(value), pointer_(std::move(pointer)), problems_(problems) {
  if (!value.is_object()) problems->add(pointer_, "an object", shown(value), "write {...}");
}

const Json* ObjectReader::member(std::string_view key) {
  known_.emplace_back(key);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

std::string ObjectReader::pointer(std::string_view key) const {
  return pointer_ + "/" + escaped(key);
}

void ObjectReader::boolean(std::string_view key, bool* out) {
  const Json* value = member(key);
  if (value == nullptr) return;
  if (!value->is_boolean())
    return problems_->add(pointer(key), "true or false", shown(*value), "write it unquoted");
  *out = value->get<bool>();
}

void ObjectReader::integer(std::string_view key, uint64_t low, uint64_t high, uint64_t* out) {
  const Json* value = member(key);
  if (value == nullptr) return;
  if (!value->is_number_unsigned() || value->get<uint64_t>() < low ||
      value->get<uint64_t>() > high) {
    return problems_->add(pointer(key),
                          "an integer from " + std::to_string(low) + " to " + std::to_string(high),
                          shown(*value), "leave it out for " + std::to_string(*out));
  }
  *out = value->get<uint64_t>();
}

void ObjectReader::integer(std::string_view key, uint32_t low, uint32_t high, uint32_t* out) {
  uint64_t value = *out;
  integer(key, uint64_t{low}, uint64_t{high}, &value);
  *out = static_cast<uint32_t>(value);
}

void ObjectReader::power_of_two(std::string_view key, uint32_t low, uint32_t high, uint32_t* out) {
  const Json* value = member(key);
  if (value == nullptr) return;
  const uint64_t number = value->is_number_unsigned() ? value->get<uint64_t>() : 0;
  if (number < low || number > high || (number & (number - 1)) != 0) {
    return problems_->add(
        pointer(key), "a power of two from " + std::to_string(low) + " to " + std::to_string(high),
        shown(*value), "leave it out for " + std::to_string(*out));
  }
  *out = static_cast<uint32_t>(number);
}

void ObjectReader::text(std::string_view key, const TextCheck& good, const std::string& wanted,
                        const std::string& remedy, std::string* out) {
  const Json* value = member(key);
  if (value == nullptr) return;
  if (!value->is_string() || !good(value->get_ref<const std::string&>())) {
    return problems_->add(pointer(key), wanted, shown(*value), remedy);
  }
  *out = value->get<std::string>();
}

void ObjectReader::object(std::string_view key, const std::function<void(ObjectReader&)>& read) {
  const Json* value = member(key);
  if (value == nullptr) return;
  ObjectReader reader(*value, pointer(key), problems_);
  read(reader);
  reader.finish();
}

void ObjectReader::finish() {
  if (!object_.is_object()) return;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = nearest(key, known_);
    problems_->add(pointer(key), "a known key (" + joined(known_) + ")",
                   "unknown key " + shown(key),
                   near.empty() ? "remove it" : "did you mean " + near + "?");
  }
}

bool parse_document(std::string_view text, Json* document, Problems* problems) {
  try {
    *document = Json::parse(text, RepeatedKeys(problems), /*allow_exceptions=*/true,
                            /*ignore_comments=*/true);
    return true;
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 9: ...": the part for people.
    const std::string what = error.what();
    const size_t end = what.find("] ");
    problems->add("", "JSON", end == std::string::npos ? what : what.substr(end + 2),
                  "mend it there");
    return false;
  }
}

}  // namespace wherry::engine
