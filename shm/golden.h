// The size of every struct that lies in shared memory, and offset and size of each field, as text.
//
// Compared with tests/unit/golden_layout.txt: what other processes read must not move by accident.
// A wanted change raises kLayoutMajor (segments) or kStatsMajor (stats file), or, at the end of a
// row or in place of reserved fields, the minor number.
#pragma once

#include <string>

namespace wherry::shm {

std::string describe_layout();

}  // namespace wherry::shm
