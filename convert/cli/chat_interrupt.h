// Ctrl-C as something to ask for, not something that ends the program.
#pragma once

namespace moepack::cli {

constexpr int kExitInterrupted = 130;  // as shells call the end by Ctrl-C

// Blocks SIGINT for this thread and those it starts. Main thread.
void hold_interrupts();
// Whether Ctrl-C came since the last call. Only after hold_interrupts().
bool take_interrupt();

}  // namespace moepack::cli
