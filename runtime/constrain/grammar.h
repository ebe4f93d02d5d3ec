// A complete graph with its ways in.
#pragma once

#include <string>
#include <vector>

#include "runtime/constrain/grammar_graph.h"

namespace moepack {

// A text after which a sleeping grammar wakes; one that is not lazy, in thoughts.
struct GrammarTrigger {
  std::string text;  // not empty
  GrammarNodeId entry = 0;
};

// Unchanging once it is complete.
class Grammar {
 public:
  GrammarGraph graph;
  bool is_lazy = false;     // the text is free until a trigger
  GrammarNodeId start = 0;  // unless it is lazy
  std::vector<GrammarTrigger> triggers;
  bool sleeps_again = false;  // after what a trigger began, the text is free again
};

}  // namespace moepack
