// Fields: reads the keys of one JSON object of a control message and keeps the first thing wrong.
//
// For messages.cc only: it brings in the JSON library. A getter that fails returns a zero value;
// the caller reads all it needs and looks at status() once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/control/messages.h"
#include "shm/status.h"

namespace wherry::engine {

class Fields {
 public:
  // `object` must be a JSON object and outlive this.
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  bool good() const { return status_.ok(); }
  const Status& status() const { return status_; }
  void fail(Status status);
  // From here on messages begin with `where`.
  void name_after(const std::string& where) { where_ = printable(where); }

  bool has(const char* key) const { return object_.contains(key); }
  uint64_t u64(const char* key, uint64_t min = 0, uint64_t max = UINT64_MAX);
  uint32_t u32(const char* key, uint32_t min = 0, uint32_t max = UINT32_MAX) {
    return static_cast<uint32_t>(u64(key, min, max));
  }
  bool boolean(const char* key);
  std::string text(const char* key);
  std::string instance(const char* key);
  // Index of the text among `choices`.
  uint32_t one_of(const char* key, std::initializer_list<std::string_view> choices);
  // "*" or a list of instances.
  std::vector<std::string> instances(const char* key, bool* all);
  std::vector<PartSpec> parts(const char* key);

  // The object under a key (an empty one on failure), and its failures back.
  Fields object(const char* key);
  void merge(Fields& inner);

  // To be called last.
  void refuse_unknown_keys();

 private:
  const nlohmann::json* get(const char* key, const char* wanted);
  void refuse(const std::string& key, const std::string& wanted, const nlohmann::json& got);

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
  Status status_;
};

}  // namespace wherry::engine
