#include "convert/cli/chat_typed_ahead.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "convert/cli/chat_interrupt.h"

namespace moepack::cli {
namespace {

constexpr int kQuietMilliseconds = 50;  // less than a person needs to read a question
constexpr int kMostDrops = 40;          // a key that is held down does not hold the program

bool comes_more() {
  pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, kQuietMilliseconds) > 0;
}

}  // namespace

void drop_typed_ahead() {
  if (::isatty(STDIN_FILENO) != 1) return;
  for (int drop = 0; drop < kMostDrops; ++drop) {
    (void)::tcflush(STDIN_FILENO, TCIFLUSH);
    if (!comes_more()) break;
  }
  // The part of a line that came meanwhile: a terminal tells of whole lines alone.
  (void)::tcflush(STDIN_FILENO, TCIFLUSH);
  (void)take_interrupt();
}

}  // namespace moepack::cli
