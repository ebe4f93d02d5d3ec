// Arguments of tools as graphs: a JSON object, or keys and values between tags.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"
#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/json_rules.h"
#include "runtime/schema/schema_limits.h"

namespace moepack {

// The key of an argument between tags: a name, or where that is empty any text of letters, digits
// and "_.-" that is none of `others`, which are sorted.
struct TaggedKey {
  std::string_view name = {};
  std::span<const std::string> others = {};
};

// How a family writes arguments between tags. The functions take the node that follows.
class TaggedArguments {
 public:
  virtual ~TaggedArguments() = default;
  // What stands before a value that is text, or JSON; the end of a value and what follows it.
  virtual GrammarNodeId before_text(const TaggedKey& key, GrammarNodeId next) const = 0;
  virtual GrammarNodeId before_json(const TaggedKey& key, GrammarNodeId next) const = 0;
  virtual GrammarNodeId after_json(GrammarNodeId next) const = 0;
  virtual GrammarNodeId text_and_end(GrammarNodeId next) const = 0;
  // Whether the family's parser reads the key back as it was written.
  virtual bool carries(std::string_view key) const = 0;
  // Whether True and False are written besides true and false.
  virtual bool writes_python() const { return false; }
};

// Whether a key is one that parsers read (runtime/chat/tagged_call_parser.cpp): they look for its
// end in 256 bytes, of which the frame takes some.
bool is_key_size(std::size_t bytes);
// Whether it can be the name in a tag: parsers take blanks and quotes off both its ends, and the
// tag ends on its line.
bool is_carried_by_tag(std::string_view key);

GrammarNodeId tagged_key(GrammarGraph& graph, const TaggedKey& key, GrammarNodeId next);

class ToolArguments {
 public:
  // Schemas that cannot be used are told in `warnings` (may be null), and any arguments allowed.
  ToolArguments(GrammarGraph& graph, JsonRules& rules, std::vector<std::string>* warnings)
      : graph_(graph), rules_(rules), warnings_(warnings) {}

  GrammarNodeId json(const ToolSpec& tool, GrammarNodeId next);
  // Each key that the schema names at most once, in any order, those that one of its ways requires
  // (of all ways what all require, where they are many) at least once;
  // then others, where it allows them in so many words. `tags` are of one family, always the same.
  GrammarNodeId tagged(const ToolSpec& tool, const TaggedArguments& tags, GrammarNodeId next);

 private:
  Result<GrammarNodeId> tagged_keys(const ToolSpec& tool, const TaggedArguments& tags,
                                    GrammarNodeId next);
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
