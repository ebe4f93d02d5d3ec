#include "convert/cli/chat_text.h"

#include "formats/base/utf8.h"

namespace moepack::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool steers_terminal(char32_t c) {
  if (c == U'\n' || c == U'\t') return false;
  const bool is_control = c < 0x20 || (c >= 0x7F && c <= 0x9F);
  const bool turns = (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return is_control || turns;
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string valid;
  append_lossy_utf8(text, true, valid);
  std::string out;
  const char* at = valid.data();
  const char* const end = at + valid.size();
  while (at < end) {
    const char* const begin = at;
    if (!steers_terminal(next_character(&at))) out.append(begin, at);
  }
  return out;
}

void WordCount::add(std::string_view text) {
  for (const char c : text) {
    const bool is_blank = kBlanks.find(c) != std::string_view::npos;
    if (!is_blank && !is_in_word_) ++words_;
    is_in_word_ = !is_blank;
  }
}

Status check_text(std::string_view text, std::string_view name) {
  const std::size_t at = find_invalid_utf8(text);
  if (at == std::string_view::npos) return Status::ok();
  return invalid_argument(
      std::string(name) + " is no text in UTF-8 from byte " + std::to_string(at) + " on",
      "give text in UTF-8");
}

std::string_view trimmed_line(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace moepack::cli
