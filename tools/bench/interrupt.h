// Ctrl-C and its kin: everything ends what it does and cleans up, instead of dying.
//
// catch_interrupts() once, on the main thread, before any process or thread is started.
#pragma once

#include "shm/status.h"

namespace wherry::bench {

// SIGINT, SIGTERM and SIGHUP only set a flag from now on; SIGPIPE becomes an error of the write.
void catch_interrupts();

bool interrupted();

// ABORTED once interrupted() is true.
Status check_interrupt();

}  // namespace wherry::bench
