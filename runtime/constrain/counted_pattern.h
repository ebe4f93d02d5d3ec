// Patterns whose texts have a number of characters between two limits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/pattern_parts.h"

namespace moepack {

// The fewest and the most characters of a text that matches; kPatternNoMaximum: endless, or
// too many to count.
std::pair<std::uint32_t, std::uint32_t> pattern_lengths(const AnchoredWay& way);

// A string of JSON with its quotes that matches one of the ways and has `min` to `max` characters
// (code points; kPatternNoMaximum: no limit). The graph has a node for each place of the pattern at
// each length: nullopt where those are too many.
std::optional<GrammarNodeId> counted_pattern(GrammarGraph& graph, std::span<const AnchoredWay> ways,
                                             std::uint32_t min, std::uint32_t max,
                                             GrammarNodeId next);

}  // namespace moepack
