// What was typed before a question was shown must not answer it.
#pragma once

namespace moepack::cli {

// Throws away what the terminal holds for stdin, and what still comes of it, until nothing has
// come for a moment; a Ctrl-C too. Nothing happens where stdin is no terminal. Only after
// hold_interrupts().
void drop_typed_ahead();

}  // namespace moepack::cli
