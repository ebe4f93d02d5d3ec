#include "convert/cli/chat_interrupt.h"

#include <csignal>
#include <ctime>

namespace moepack::cli {
namespace {

sigset_t interrupt_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void hold_interrupts() {
  const sigset_t set = interrupt_signal();
  (void)pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

bool take_interrupt() {
  const sigset_t set = interrupt_signal();
  const timespec at_once{};
  return sigtimedwait(&set, nullptr, &at_once) == SIGINT;
}

}  // namespace moepack::cli
