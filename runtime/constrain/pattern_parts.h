// A pattern as it was read: characters, groups and how often they come.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/text_bytes.h"

namespace moepack {

constexpr std::uint32_t kPatternNoMaximum = GrammarNode::kNoMaximum;

// A part of a pattern, repeated.
struct PatternPart {
  enum class Kind : std::uint8_t { kCharacter, kGroup } kind = Kind::kCharacter;
  CodePoints characters;
  std::vector<std::vector<PatternPart>> ways;  // kGroup
  std::uint32_t min = 1, max = 1;
};
using PatternWay = std::vector<PatternPart>;

struct AnchoredWay {
  PatternWay parts;
  bool has_begin = false, has_end = false;
};

// One of the characters as it stands in a string of JSON: in its shortest form.
GrammarNodeId pattern_character(GrammarGraph& graph, const CodePoints& points, GrammarNodeId next);

}  // namespace moepack
