// Arguments of tools as graphs: a JSON object, or keys and values between tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/json_rules.h"
#include "runtime/constrain/schema_limits.h"

namespace moepack {

// How a family writes arguments between tags. The functions take the node that follows. An empty
// key stands for any of letters, digits and "_.-".
class TaggedArguments {
 public:
  virtual ~TaggedArguments() = default;
  // What stands before a value that is text, or JSON; the end of a value and what follows it.
  virtual GrammarNodeId before_text(std::string_view key, GrammarNodeId next) const = 0;
  virtual GrammarNodeId before_json(std::string_view key, GrammarNodeId next) const = 0;
  virtual GrammarNodeId after_json(GrammarNodeId next) const = 0;
  virtual GrammarNodeId text_and_end(GrammarNodeId next) const = 0;
  // Whether True and False are written besides true and false.
  virtual bool writes_python() const { return false; }
};

GrammarNodeId tagged_key(GrammarGraph& graph, std::string_view key, GrammarNodeId next);

class ToolArguments {
 public:
  // Schemas that cannot be used are told in `warnings` (may be null), and any arguments allowed.
  ToolArguments(GrammarGraph& graph, JsonRules& rules, std::vector<std::string>* warnings)
      : graph_(graph), rules_(rules), warnings_(warnings) {}

  GrammarNodeId json(const ToolSpec& tool, GrammarNodeId next);
  // Each key at most once, in any order, the required ones at least once. `tags` are of one family,
  // always the same.
  GrammarNodeId tagged(const ToolSpec& tool, const TaggedArguments& tags, GrammarNodeId next);

 private:
  void warn(const ToolSpec& tool, std::string_view what);
  void settle();

  GrammarGraph& graph_;
  JsonRules& rules_;
  SchemaWork work_;            // of all tools together
  GrammarNodeId settled_ = 0;  // nodes before it know what they need
  GrammarNodeId text_ = 0;     // any text to the end of a value between tags; 0: not yet built
  std::vector<std::string>* warnings_;
};

}  // namespace moepack
