// What a conversation looks like on the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "convert/cli/chat_text.h"

namespace moepack::cli {

// Writes to `out`, which outlives it. One thread at a time.
class ChatView {
 public:
  // `is_terminal`: with colours and lines that change; else the content alone is written.
  ChatView(std::ostream& out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}

  void set_shows_thoughts(bool shows) { shows_thoughts_ = shows; }
  bool shows_thoughts() const { return shows_thoughts_; }

  void prompt(std::uint64_t done, std::uint64_t total);
  void thought(std::string_view text);
  void content(std::string_view text);
  void end_answer();
  // A line of the program itself, grey.
  void note(std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  void clear_changing_line();
  void show_changing_line(const std::string& text);
  void end_thoughts();

  std::ostream& out_;
  bool is_terminal_;
  bool shows_thoughts_ = false;
  bool is_thinking_ = false;
  bool has_changing_line_ = false;
  bool is_line_open_ = false;  // content was written without a line end behind it
  Clock::time_point thinking_since_, drawn_;
  WordCount words_;
};

}  // namespace moepack::cli
