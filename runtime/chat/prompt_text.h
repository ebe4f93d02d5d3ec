// A rendered prompt: text that knows which of its bytes came from messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moepack {

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct PromptText {
  std::string text;                  // UTF-8
  std::vector<TextRange> from_user;  // ascending, apart from each other: what messages, tools and
                                     // arguments brought; markers in there are text, never tokens
};

}  // namespace moepack
