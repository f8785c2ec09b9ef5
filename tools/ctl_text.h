// What wherryctl shows of the engine's replies: for people, or as JSON. Any thread; nothing fails.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace wherry::tools {

// The reply of `status`, `clients` or `transports` as lines for people. Values that are missing or
// of another type show as "?".
std::string status_text(const nlohmann::json& reply);
std::string clients_text(const nlohmann::json& reply);
std::string transports_text(const nlohmann::json& reply);

// The reply without what only the protocol needs.
std::string reply_json(const nlohmann::json& reply);

}  // namespace wherry::tools
