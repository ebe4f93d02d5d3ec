// Characters of text as bytes of UTF-8, for graphs.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/constrain/grammar_graph.h"

namespace moepack {

// Follows the bytes of one text: well-formed UTF-8 (RFC 3629), no NUL.
class TextBytes {
 public:
  using State = std::uint8_t;
  static constexpr State kBetween = 0;  // between two characters
  static constexpr State kWrong = 0xFF;
  static State next(State state, std::uint8_t byte);
};

// Text that goes on until `end_mark` has come, which begins with '<'. `mark` is the mark as the
// family writes it, with what follows: where that has tokens of the vocabulary (GrammarGraph::
// marker), text never spells the whole mark, because its parser would not take that for the end.
GrammarNodeId text_until(GrammarGraph& graph, std::string_view end_mark, GrammarNodeId mark);

// Ranges of code points, both ends included, ascending, none touching the next.
using CodePoints = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
CodePoints normalised(CodePoints points);
CodePoints complement(const CodePoints& points);  // of U+0000 to U+10FFFF
bool contains(const CodePoints& points, std::uint32_t point);

// One of the code points as UTF-8; surrogates never.
GrammarNodeId utf8_character(GrammarGraph& graph, const CodePoints& points, GrammarNodeId next);

}  // namespace moepack
