// No exception leaves the library: what the standard library throws becomes a Status. Internal.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "shm/status.h"

namespace wherry::detail {

// NO_RESOURCES; without a text when there is no memory even for that.
inline Status out_of_memory(const char* got) noexcept {
  try {
    return {Code::kNoResources,
            std::string("client library: wanted memory and threads, got ") + got + "; free some"};
  } catch (...) {
    return {Code::kNoResources, std::string()};
  }
}

// Runs `function`, whose result can be made from a Status.
template <typename Function>
auto guarded(Function&& function) noexcept -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::exception& error) {
    return out_of_memory(error.what());
  } catch (...) {
    return out_of_memory("an exception of another kind");
  }
}

}  // namespace wherry::detail
