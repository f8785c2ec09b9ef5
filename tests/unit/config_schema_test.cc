// The schema for editors and the parser know the same keys, with the same ranges and defaults.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/control/config.h"

namespace wherry::engine {
namespace {

using Json = nlohmann::json;
using Pointer = Json::json_pointer;

constexpr char kInstance[] = "some-instance";

// A key of the schema: where a document has it, and what the schema says of it.
struct Key {
  Pointer pointer;
  Json schema;
};

struct Schema {
  std::vector<Key> leaves;
  std::vector<Key> objects;
};

void walk(const Json& schema, const Pointer& at, Schema* out) {
  if (schema.value("type", "") == "object") {
    if (schema.contains("patternProperties")) {
      walk(schema["patternProperties"].begin().value(), at / kInstance, out);
      return;
    }
    out->objects.push_back({at, schema});
    for (const auto& [name, of_name] : schema["properties"].items()) walk(of_name, at / name, out);
  } else if (schema.value("type", "") == "array") {
    walk(schema["items"], at / size_t{0}, out);
  } else {
    out->leaves.push_back({at, schema});
  }
}

Schema load_schema() {
  std::ifstream file(WHERRY_SOURCE_DIR "/configs/engine.schema.json");
  Schema schema;
  walk(Json::parse(file), Pointer(), &schema);
  return schema;
}

// Values that the schema allows for a leaf.
std::vector<Json> good_values(const Json& schema) {
  std::vector<Json> values;
  for (const char* list : {"examples", "enum"}) {
    if (schema.contains(list))
      values.insert(values.end(), schema[list].begin(), schema[list].end());
  }
  for (const char* one : {"default", "minimum", "maximum"}) {
    if (schema.contains(one)) values.push_back(schema[one]);
  }
  if (schema.value("type", "") == "boolean") values.insert(values.end(), {true, false});
  return values;
}

// A document with one key set, in which it contradicts no other.
Json document_with(const Pointer& pointer, const Json& value) {
  Json document = {{"limits", {{"submission_slots", 65536}}},
                   {"channels", {{"submission_slots", 8}}},
                   {"transports", {{"null", {{"enabled", true}}}}}};
  document[pointer] = value;
  return document;
}

Result<Config> parse(const Json& document) {
  return parse_config(document.dump(), "test", {.allow_null = true});
}

TEST(ConfigSchema, TheParserAcceptsEveryKeyWithEveryValueThatTheSchemaNames) {
  const Schema schema = load_schema();
  EXPECT_GT(schema.leaves.size(), 30u);
  for (const Key& key : schema.leaves) {
    const std::vector<Json> values = good_values(key.schema);
    EXPECT_FALSE(values.empty()) << key.pointer << " needs an example";
    for (const Json& value : values) {
      const Result<Config> config = parse(document_with(key.pointer, value));
      EXPECT_TRUE(config.ok()) << config.status().to_string();
    }
  }
}

TEST(ConfigSchema, TheParserRefusesWhatLiesJustOutsideTheRanges) {
  for (const Key& key : load_schema().leaves) {
    if (key.schema.contains("minimum")) {
      EXPECT_FALSE(parse(document_with(key.pointer, key.schema["minimum"].get<int64_t>() - 1)).ok())
          << key.pointer;
      EXPECT_FALSE(parse(document_with(key.pointer, key.schema["maximum"].get<int64_t>() + 1)).ok())
          << key.pointer;
    }
    if (key.schema.contains("enum")) {
      const Json last = key.schema["enum"].back();
      const Json bad =
          last.is_string() ? Json(last.get<std::string>() + "x") : Json(last.get<int64_t>() * 2);
      EXPECT_FALSE(parse(document_with(key.pointer, bad)).ok()) << key.pointer;
    }
    EXPECT_FALSE(parse(document_with(key.pointer, Json::array())).ok()) << key.pointer;
  }
}

// An unknown key makes the parser list those it knows, at every object.
TEST(ConfigSchema, TheSchemaHasEveryKeyThatTheParserKnows) {
  for (const Key& key : load_schema().objects) {
    const Pointer unknown = key.pointer / "?";
    const Result<Config> config = parse(document_with(unknown, 1));
    ASSERT_FALSE(config.ok()) << unknown;
    const std::string message = config.status().message();
    const std::string lead = unknown.to_string() + ": wanted a known key (";
    const size_t begin = message.find(lead);
    ASSERT_NE(begin, std::string::npos) << message;
    const size_t names = begin + lead.size();
    std::string list = message.substr(names, message.find(')', names) - names) + ", ";
    std::set<std::string> known;
    for (size_t comma = 0; (comma = list.find(", ")) != std::string::npos;
         list.erase(0, comma + 2)) {
      known.insert(list.substr(0, comma));
    }
    std::set<std::string> in_schema;
    for (const auto& [name, ignored] : key.schema["properties"].items()) in_schema.insert(name);
    EXPECT_EQ(known, in_schema) << "at \"" << key.pointer << '"';
  }
}

TEST(ConfigSchema, TheSchemasDefaultsAreThoseOfTheParser) {
  const Result<Config> config = parse_config(R"({"client_limits": {"some-instance": {}}})", "test");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const Json effective = Json::parse(effective_config_json(*config));
  for (const Key& key : load_schema().leaves) {
    if (!key.schema.contains("default")) continue;
    ASSERT_TRUE(effective.contains(key.pointer)) << key.pointer;
    EXPECT_EQ(effective[key.pointer], key.schema["default"]) << key.pointer;
  }
}

TEST(ConfigSchema, EveryKeyIsDescribed) {
  const Schema schema = load_schema();
  for (const std::vector<Key>& keys : {schema.leaves, schema.objects}) {
    for (const Key& key : keys) EXPECT_TRUE(key.schema.contains("description")) << key.pointer;
  }
}

}  // namespace
}  // namespace wherry::engine
