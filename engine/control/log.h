// The engine's log. Control thread (and main) only: a poller never logs.
//
// Lines that clients can cause are limited to kClientLinesPerSecond in all; what is left out is
// counted and said with the next one. How often each kind of trouble was stands in the stats file's
// error log.
#pragma once

#include <string>

namespace wherry::engine {

inline constexpr int kClientLinesPerSecond = 50;

void log_info(const std::string& line);
void log_warning(const std::string& line);
void log_error(const std::string& line);

// What a client did or suffered.
void log_client(const std::string& line);

}  // namespace wherry::engine
