#include "convert/cli/chat_input.h"

#include <cstdlib>
#include <iostream>
#include <string_view>
#include <system_error>

#include "convert/cli/chat_text.h"
#include "convert/cli/chat_typed_ahead.h"

namespace moepack::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char* kFirstPrompt = "> ";
constexpr const char* kNextPrompt = ". ";

class PlainInput final : public ChatInput {
 public:
  ChatLine read_line(const std::string& prompt, const std::string&) override {
    std::cout << prompt << std::flush;
    ChatLine line;
    if (std::getline(std::cin, line.text)) line.kind = ChatLine::Kind::kLine;
    if (line.text.ends_with('\r')) line.text.pop_back();
    return line;
  }
  ChatLine read_answer(const std::string& question) override {
    drop_typed_ahead();
    return read_line(question, "");
  }
};

// The rest of a message that begins with three quotation marks.
ChatLine read_quoted(ChatInput& input, std::string text) {
  text.erase(0, kQuotes.size());
  while (!trimmed_line(text).ends_with(kQuotes)) {
    const ChatLine next = input.read_line(kNextPrompt, "");
    if (next.kind != ChatLine::Kind::kLine) return next;
    text += "\n" + next.text;
  }
  text.erase(text.rfind(kQuotes));
  return {ChatLine::Kind::kLine, text};
}

}  // namespace

std::unique_ptr<ChatInput> make_plain_input() { return std::make_unique<PlainInput>(); }

std::filesystem::path chat_history_file() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path directory;
  if (state != nullptr && *state == '/') {
    directory = state;
  } else if (home != nullptr && *home == '/') {
    directory = std::filesystem::path(home) / ".local" / "state";
  } else {
    return {};
  }
  directory /= "moepack";
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return {};
  return directory / "chat_history";
}

ChatLine read_message(ChatInput& input, const std::string& begin) {
  ChatLine line = input.read_line(kFirstPrompt, begin);
  const bool is_as_it_was = !begin.empty() && line.text == begin;
  if (line.kind != ChatLine::Kind::kLine || is_as_it_was) return line;
  if (line.text.starts_with(kQuotes)) return read_quoted(input, std::move(line.text));
  while (line.text.ends_with('\\')) {
    const ChatLine next = input.read_line(kNextPrompt, "");
    if (next.kind != ChatLine::Kind::kLine) return next;
    line.text.back() = '\n';
    line.text += next.text;
  }
  return line;
}

}  // namespace moepack::cli
