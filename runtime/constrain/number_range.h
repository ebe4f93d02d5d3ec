// Numbers between two bounds, digit by digit.
#pragma once

#include <optional>
#include <string>

#include "runtime/constrain/grammar_graph.h"

namespace moepack {

// A decimal number without exponent.
struct NumberBound {
  bool is_negative = false;
  std::string whole = "0";  // digits, no leading zero but a lone one
  std::string fraction;     // digits, may be empty
  bool is_excluded = false;

  // nullopt for a number that is not finite or has an exponent in its shortest form.
  static std::optional<NumberBound> of(double value, bool is_excluded);
  // < 0, 0, > 0 as the value is less than, equal to or greater than that of `other`.
  int compare(const NumberBound& other) const;
};

// A number of JSON without exponent, at most 20 digits on each side of the point, which lies
// between the bounds; nullopt: no bound. `is_integer`: without point.
GrammarNodeId number_between(GrammarGraph& graph, const std::optional<NumberBound>& low,
                             const std::optional<NumberBound>& high, bool is_integer,
                             GrammarNodeId next);

}  // namespace moepack
