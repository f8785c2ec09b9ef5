// Descriptors that clients sent: telling those that are safe to close, and closing the others.
//
// Closing may block for as long as the sender likes (a file of its own FUSE file system, a socket
// that lingers), and whoever receives a descriptor has to close it. The control thread keeps only
// kinds of which the kernel can close the last one at once. Any thread; nothing fails.
#pragma once

#include <vector>

#include "shm/file_descriptor.h"

namespace wherry::engine {

// Whether it is a pidfd: only these say a pid about themselves.
bool is_pidfd(int fd);

// Takes out, leaving invalid ones in their places, all that are neither memory (memfds, huge pages
// or not) nor pidfds.
std::vector<shm::UniqueFd> take_risky(std::vector<shm::UniqueFd>& descriptors);

// Closes them on a thread for that, in time.
void close_elsewhere(std::vector<shm::UniqueFd> descriptors);

}  // namespace wherry::engine
