// Text of a model, made safe for a terminal, and words counted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack::cli {

// Without the characters that steer a terminal: C0 but for line ends and tabs, DEL, C1, and those
// that turn the direction of writing. `text` is UTF-8, whole characters.
std::string terminal_text(std::string_view text);

// Counts words over the borders of pieces.
class WordCount {
 public:
  void add(std::string_view text);
  std::size_t words() const { return words_; }

 private:
  std::size_t words_ = 0;
  bool is_in_word_ = false;
};

// An error where `text` is not UTF-8; `name` says in it where the text is from.
Status check_text(std::string_view text, std::string_view name);

std::string_view trimmed_line(std::string_view text);  // without white space at both ends

}  // namespace moepack::cli
