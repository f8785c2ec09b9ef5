#include "tools/bench/interrupt.h"

#include <csignal>

namespace wherry::bench {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void note_interrupt(int /*signal*/) { g_interrupted = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return g_interrupted != 0; }

Status check_interrupt() {
  return interrupted() ? Status(Code::kAborted, "interrupted") : Status();
}

}  // namespace wherry::bench
