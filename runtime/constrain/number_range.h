// Numbers between two bounds, digit by digit.
#pragma once

#include <optional>
#include <string>

#include "runtime/constrain/grammar_graph.h"
#include "runtime/schema/ordered_json.h"

namespace moepack {

// A decimal number without exponent, exactly as the schema has it.
struct NumberBound {
  bool is_negative = false;
  std::string whole = "0";  // digits, no leading zero but a lone one
  std::string fraction;     // digits, may be empty
  bool is_excluded = false;

  // The bound as a number with at most 20 digits on each side of the point: of the numbers that
  // have no more, the same ones are within. nullopt for what is not finite and where none is
  // within.
  static std::optional<NumberBound> lowest(const OrderedJson& number, bool is_excluded);
  static std::optional<NumberBound> highest(const OrderedJson& number, bool is_excluded);
  // < 0, 0, > 0 as the value is less than, equal to or greater than that of `other`.
  int compare(const NumberBound& other) const;
};

// A number of JSON without exponent, at most 20 digits on each side of the point, which lies
// between the bounds; nullopt: no bound. `is_integer`: without point.
GrammarNodeId number_between(GrammarGraph& graph, const std::optional<NumberBound>& low,
                             const std::optional<NumberBound>& high, bool is_integer,
                             GrammarNodeId next);

}  // namespace moepack
