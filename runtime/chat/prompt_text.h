// A rendered prompt: text that knows which of its bytes came from messages.
//
// Whose bytes are whose: what a request brings as content, reasoning, names, ids, arguments,
// schemas, descriptions and arguments of the template is the user's, whoever sent it; what the
// template and the tokenizer's special tokens bring is ours, and so are roles, which are words of a
// fixed list when they reach a template (history.h). A marker of the vocabulary is a token only
// where all of its bytes are ours, or where the model itself sampled that token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moepack {

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Bytes whose tokens are known because the model sampled them. Added tokens among `ids` stand for
// themselves, in a range from users too.
struct SampledRange {
  TextRange bytes;
  std::vector<std::int32_t> ids;  // their texts together are those bytes
};

// The first of `ranges` (ascending, apart from each other) that ends behind `at`.
std::vector<TextRange>::const_iterator first_behind(const std::vector<TextRange>& ranges,
                                                    std::size_t at);
// Whether a byte of `part` is in one of them.
bool touches(const std::vector<TextRange>& ranges, TextRange part);

struct PromptText {
  std::string text;                  // UTF-8
  std::vector<TextRange> from_user;  // ascending, apart from each other, none empty; markers in
                                     // there are text, never tokens
  std::vector<SampledRange> sampled = {};  // ascending, apart from each other
};

}  // namespace moepack
