// The doctor: is this host ready for an engine with this config?
//
// Looks only: makes, locks and changes nothing. Any thread; may block on files.
#pragma once

#include <string>
#include <vector>

#include "engine/control/config.h"

namespace wherry::engine {

enum class Verdict : uint8_t {
  kGood,
  kNote,  // works, but a person may want to know
  kBad,   // an engine would not start, or not do its work
};

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string subject;  // "memory", ...
  std::string what;
  std::string remedy;  // empty when there is nothing to do
};

std::vector<Finding> examine_host(const Config& config);

// One line a finding, for people.
std::string findings_text(const std::vector<Finding>& findings);

// Whether none is bad.
bool is_ready(const std::vector<Finding>& findings);

}  // namespace wherry::engine
