// No exception leaves the library: what the standard library throws becomes a Status. Internal.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "shm/status.h"

namespace wherry::detail {

// Runs `function`, whose result can be made from a Status.
template <typename Function>
auto guarded(Function&& function) -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::exception& error) {
    return Status(Code::kNoResources,
                  std::string("client library: wanted memory and threads, got ") + error.what() +
                      "; free some");
  }
}

}  // namespace wherry::detail
