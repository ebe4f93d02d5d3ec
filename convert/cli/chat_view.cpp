#include "convert/cli/chat_view.h"

#include <iomanip>
#include <sstream>
#include <utility>

namespace moepack::cli {
namespace {

constexpr const char* kGrey = "\033[90m";
constexpr const char* kPlain = "\033[0m";
constexpr std::chrono::milliseconds kDrawPause{100};

std::string counted_words(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " word" : " words");
}

}  // namespace

void ChatView::clear_changing_line() {
  if (std::exchange(has_changing_line_, false)) out_ << "\r\033[K";
}

void ChatView::show_changing_line(const std::string& text) {
  const auto now = Clock::now();
  if (has_changing_line_ && now - drawn_ < kDrawPause) return;
  drawn_ = now;
  has_changing_line_ = true;
  out_ << "\r\033[K" << kGrey << text << kPlain << std::flush;
}

void ChatView::prompt(std::uint64_t done, std::uint64_t total) {
  if (!is_terminal_ || is_thinking_ || is_line_open_) return;
  show_changing_line("reading " + std::to_string(done) + " of " + std::to_string(total) +
                     " tokens");
}

void ChatView::thought(std::string_view text) {
  if (!is_terminal_) return;
  if (!std::exchange(is_thinking_, true)) {
    clear_changing_line();
    thinking_since_ = Clock::now();
    words_ = {};
  }
  words_.add(text);
  if (shows_thoughts_) {
    out_ << kGrey << terminal_text(text) << kPlain << std::flush;
  } else {
    show_changing_line("thinking: " + counted_words(words_.words()));
  }
}

void ChatView::end_thoughts() {
  if (!std::exchange(is_thinking_, false)) return;
  clear_changing_line();
  const std::chrono::duration<double> seconds = Clock::now() - thinking_since_;
  std::ostringstream text;
  text << (shows_thoughts_ ? "\n" : "") << kGrey << "thought: " << counted_words(words_.words())
       << ", " << std::fixed << std::setprecision(1) << seconds.count() << " s" << kPlain << "\n";
  out_ << text.str() << std::flush;
}

void ChatView::content(std::string_view text) {
  end_thoughts();
  clear_changing_line();
  const std::string shown = terminal_text(text);
  if (shown.empty()) return;
  out_ << shown << std::flush;
  is_line_open_ = !shown.ends_with('\n');
}

void ChatView::end_answer() {
  end_thoughts();
  clear_changing_line();
  if (std::exchange(is_line_open_, false)) out_ << "\n";
  out_ << std::flush;
}

void ChatView::note(std::string_view text) {
  const std::string shown = terminal_text(text);
  if (is_terminal_) {
    out_ << kGrey << shown << kPlain << "\n" << std::flush;
  } else {
    out_ << shown << "\n" << std::flush;
  }
}

}  // namespace moepack::cli
