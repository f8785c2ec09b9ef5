#include "engine/control/message_fields.h"

#include <algorithm>
#include <utility>

namespace wherry::engine {
namespace {

using nlohmann::json;

const json& empty_object() {
  static const json* const kEmpty = new json(json::object());
  return *kEmpty;
}

// What a value is, short enough for a message.
std::string describe(const json& value) {
  if (value.is_string()) return '"' + printable(value.get_ref<const std::string&>()) + '"';
  if (value.is_number() || value.is_boolean()) return value.dump();
  return value.type_name();
}

std::string range_text(uint64_t min, uint64_t max) {
  if (max == UINT64_MAX) return "an integer from " + std::to_string(min) + " to 2^64-1";
  return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

}  // namespace

void Fields::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void Fields::refuse(const std::string& key, const std::string& wanted, const json& got) {
  fail({Code::kInvalidArgument, where_ + ", key \"" + key + "\": wanted " + wanted + ", got " +
                                    describe(got) + "; correct the message"});
}

const json* Fields::get(const char* key, const char* wanted) {
  known_.insert(key);
  const auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  fail({Code::kInvalidArgument, where_ + ", key \"" + key + "\": wanted " + wanted +
                                    ", got no such key; correct the message"});
  return nullptr;
}

uint64_t Fields::u64(const char* key, uint64_t min, uint64_t max) {
  const json* value = get(key, "an integer");
  if (value == nullptr) return 0;
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number >= min && number <= max) return number;
  }
  refuse(key, range_text(min, max), *value);
  return 0;
}

bool Fields::boolean(const char* key) {
  const json* value = get(key, "true or false");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "true or false", *value);
  return false;
}

std::string Fields::text(const char* key) {
  const json* value = get(key, "a text");
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "a text", *value);
  return {};
}

std::string Fields::instance(const char* key) {
  const json* value = get(key, "an instance name");
  if (value == nullptr) return {};
  if (value->is_string() && valid_instance(value->get_ref<const std::string&>())) {
    return value->get<std::string>();
  }
  refuse(key, "an instance name, 1 to 64 of [A-Za-z0-9._-]", *value);
  return {};
}

uint32_t Fields::one_of(const char* key, std::initializer_list<std::string_view> choices) {
  std::string wanted;
  for (const std::string_view choice : choices) {
    wanted += (wanted.empty() ? "one of " : ", ") + std::string(choice);
  }
  const json* value = get(key, wanted.c_str());
  if (value == nullptr) return 0;
  if (value->is_string()) {
    const auto found =
        std::find(choices.begin(), choices.end(), value->get_ref<const std::string&>());
    if (found != choices.end()) return static_cast<uint32_t>(found - choices.begin());
  }
  refuse(key, wanted, *value);
  return 0;
}

std::vector<std::string> Fields::instances(const char* key, bool* all) {
  static constexpr char kWanted[] = "\"*\" or a list of 1 to 1024 instance names";
  static_assert(kMaxPublishTargets == 1024);
  *all = false;
  const json* value = get(key, kWanted);
  if (value == nullptr) return {};
  if (value->is_string() && value->get_ref<const std::string&>() == "*") {
    *all = true;
    return {};
  }
  if (!value->is_array() || value->empty() || value->size() > kMaxPublishTargets) {
    refuse(key, kWanted, *value);
    return {};
  }
  std::vector<std::string> names;
  for (const json& name : *value) {
    if (!name.is_string() || !valid_instance(name.get_ref<const std::string&>())) {
      refuse(key, "instance names, 1 to 64 of [A-Za-z0-9._-] each", name);
      return {};
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::vector<PartSpec> Fields::parts(const char* key) {
  static constexpr char kWanted[] = "a list of 1 to 262144 triples [region, offset, length]";
  static_assert(kMaxLayoutParts == 262144);
  const json* value = get(key, kWanted);
  if (value == nullptr) return {};
  if (!value->is_array() || value->empty() || value->size() > kMaxLayoutParts) {
    refuse(key, kWanted, *value);
    return {};
  }
  std::vector<PartSpec> parts;
  parts.reserve(value->size());
  for (const json& triple : *value) {
    if (!triple.is_array() || triple.size() != 3 ||
        !std::all_of(triple.begin(), triple.end(),
                     [](const json& number) { return number.is_number_unsigned(); })) {
      refuse(std::string(key) + "/" + std::to_string(parts.size()),
             "three unsigned integers [region, offset, length]", triple);
      return {};
    }
    parts.push_back(
        {triple[0].get<uint64_t>(), triple[1].get<uint64_t>(), triple[2].get<uint64_t>()});
  }
  return parts;
}

Fields Fields::object(const char* key) {
  const json* value = get(key, "an object");
  if (value != nullptr && value->is_object()) return {*value, where_ + ", " + key};
  if (value != nullptr) refuse(key, "an object", *value);
  return {empty_object(), where_ + ", " + key};
}

void Fields::merge(Fields& inner) {
  inner.refuse_unknown_keys();
  fail(inner.status_);
}

void Fields::refuse_unknown_keys() {
  if (!status_.ok()) return;
  for (const auto& item : object_.items()) {
    if (known_.count(item.key()) != 0) continue;
    fail({Code::kInvalidArgument, where_ + ": wanted only known keys, got \"" +
                                      printable(item.key()) + "\"; correct the message"});
    return;
  }
}

}  // namespace wherry::engine
