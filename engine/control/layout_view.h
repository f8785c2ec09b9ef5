// Builds the View of a layout from what a client said and the regions it holds.
//
// Control thread. Refusals: INVALID_ARGUMENT (geometry, part lengths), STALE (a handle that is no
// region of the client), OUT_OF_RANGE (a part outside its region), OVERLAP (parts that share bytes,
// where the kind is not a list).
#pragma once

#include <memory>
#include <vector>

#include "engine/control/handle_table.h"
#include "engine/control/messages.h"
#include "shm/status.h"

namespace wherry::engine {

struct LayoutView {
  std::shared_ptr<View> view;     // id and owner are left to the caller
  std::vector<uint64_t> regions;  // handles it lies in, each once, ascending
  uint8_t rights = 0;             // what all of these allow
};

Result<LayoutView> build_layout_view(const RegisterLayout& request, HandleTable& handles);

}  // namespace wherry::engine
