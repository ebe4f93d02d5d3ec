// One of several names, of which a later place allows one fewer: the tries of all the places share
// what they have in common, so that a text stands in one way however many names there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/constrain/grammar_graph.h"

namespace moepack {

// One thread at a time. A name that is added copies the path to it (Driscoll et al. 1989, "Making
// data structures persistent"): nodes that were returned before keep what they allow.
class KeyChoice {
 public:
  // Edges of the graph that copies of one choice may take: a few hundred names of thousands, which
  // then are some choices instead of one.
  static constexpr std::size_t kMostCopies = 4000;

  // `graph` outlives the object.
  explicit KeyChoice(GrammarGraph& graph) : graph_(graph) { clear(); }

  // The choice among `text` with what follows it and all that was added since clear(). `text` is
  // not empty and neither begins with another one nor another one with it.
  GrammarNodeId add(std::string_view text, GrammarNodeId next);
  // No name.
  void clear() {
    nodes_.assign(1, {});
    copies_ = 0;
  }
  // Whether a choice should begin anew: copies took what they may.
  bool is_full() const { return copies_ >= kMostCopies; }

 private:
  struct Node {
    std::map<unsigned char, std::uint32_t> children;  // indices of nodes_
    GrammarNodeId node = 0;                           // of the graph, as of the last add()
  };

  GrammarGraph& graph_;
  std::vector<Node> nodes_;  // the first is the root
  std::size_t copies_ = 0;
};

}  // namespace moepack
