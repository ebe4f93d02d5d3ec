// The parts of JSON (RFC 8259) as graphs.
//
// White space is one space or at most two line ends with at most kMaxIndent blanks behind them,
// where JSON allows any: a model that repeats itself must come to an end. Numbers have at most 20
// digits before and 20 behind the point and exponents to 279, so that none overflows a double.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/constrain/grammar_graph.h"

namespace moepack {

class JsonRules {
 public:
  static constexpr std::uint32_t kMaxIndent = 40;

  explicit JsonRules(GrammarGraph& graph) : graph_(graph) {}

  GrammarNodeId space(GrammarNodeId next);
  // A string of min to max characters (code points) with every escape of JSON.
  GrammarNodeId string(std::uint32_t min, std::uint32_t max, GrammarNodeId next);
  // A character of a string, as a part.
  GrammarNodeId character();
  GrammarNodeId number(GrammarNodeId next);
  GrammarNodeId integer(GrammarNodeId next);
  // Any value; any object.
  GrammarNodeId value(GrammarNodeId next);
  GrammarNodeId object(GrammarNodeId next);
  GrammarNodeId array(GrammarNodeId next);
  // A key that is none of `others` with its value (a part) and what lies between; escapes \uXXXX
  // are left out, so that no key of `others` can be written in another way.
  GrammarNodeId other_pair(std::span<const std::string> others, GrammarNodeId value,
                           GrammarNodeId next);
  // `:` and white space, then a value (a part).
  GrammarNodeId colon_and(GrammarNodeId value, GrammarNodeId next);

  // A string as JSON, in the shortest form, UTF-8 as it is; invalid bytes become U+FFFD.
  static std::string quoted(std::string_view text);

 private:
  GrammarNodeId hex_digits(std::uint32_t count, GrammarNodeId next);
  GrammarNodeId digits(std::uint32_t max, GrammarNodeId next);  // 0 to max
  GrammarNodeId number_part();
  GrammarNodeId integer_part();
  GrammarNodeId value_part();

  GrammarGraph& graph_;
  // Parts that were built; 0 (which is none of them): not yet.
  GrammarNodeId space_ = 0, character_ = 0, number_ = 0, integer_ = 0, value_ = 0;
};

}  // namespace moepack
