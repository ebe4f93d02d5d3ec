// Regular expressions as schemas have them ("pattern"), as graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/json_rules.h"

namespace moepack {

// A subset of ECMA-262: characters and their escapes, `.`, classes, groups, alternation,
// quantifiers, and anchors where an alternative begins or ends. Without `^` or `$` anything may
// stand before or behind.
class StringPattern {
 public:
  // nullopt for what is not in the subset (look-around, back references, \b, \p, …) and for
  // patterns that are too long, or repeat so much that following a text would take too long.
  static std::optional<StringPattern> parse(std::string_view pattern);
  StringPattern(StringPattern&&) noexcept;
  StringPattern& operator=(StringPattern&&) noexcept;
  ~StringPattern();

  // A string of JSON with its quotes whose characters match, and are `min` to `max` (code points).
  // Characters are written in their shortest form: no \uXXXX but for control characters that have
  // no other. nullopt where pattern and limits together are too large to be counted.
  std::optional<GrammarNodeId> json_string(GrammarGraph& graph, JsonRules& rules, std::uint32_t min,
                                           std::uint32_t max, GrammarNodeId next) const;

 private:
  struct Impl;
  explicit StringPattern(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
