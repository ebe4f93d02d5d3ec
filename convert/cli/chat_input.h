// Lines that a person types, with a history and pasted text in one piece.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace moepack::cli {

struct ChatLine {
  enum class Kind { kLine, kInterrupt, kEnd };
  Kind kind = Kind::kEnd;  // kInterrupt: Ctrl-C; kEnd: Ctrl-D, or nothing follows
  std::string text;        // may have line ends where it was pasted
};

// One thread at a time.
class ChatInput {
 public:
  virtual ~ChatInput() = default;
  // `begin`: text that stands there already, to be changed.
  virtual ChatLine read_line(const std::string& prompt, const std::string& begin) = 0;
  // A line that allows something: what was typed before the question was shown is no part of it,
  // and no history keeps it.
  virtual ChatLine read_answer(const std::string& question) = 0;
};

// From the terminal; with an editor where libedit is. The history lies in `history`, readable by
// its owner alone; empty: it is not kept.
std::unique_ptr<ChatInput> make_terminal_input(const std::filesystem::path& history);
// From any stdin: lines as they come.
std::unique_ptr<ChatInput> make_plain_input();

// $XDG_STATE_HOME/moepack/chat_history, else ~/.local/state/moepack/chat_history; makes its
// directory. Empty where that cannot be.
std::filesystem::path chat_history_file();

// A message: one line, or several: each with "\" at its end but the last, or all from a line that
// begins with """ to one that ends with it. What is left as it `begin`s is taken as it is.
ChatLine read_message(ChatInput& input, const std::string& begin);

}  // namespace moepack::cli
