// JSON schemas (2020-12 and what draft 7 writes in another way) as graphs.
//
// Taken into account: $ref within the document, allOf, anyOf, oneOf (as anyOf), type, enum, const,
// properties, required, additionalProperties, items, prefixItems, minItems, maxItems, minLength,
// maxLength, pattern (StringPattern), format (format_pattern), minimum, maximum and their exclusive
// forms, nullable. Notes are passed over; any other keyword or format is named in a warning and
// then ignored, so that texts may not satisfy it. Keys come in the order in which the schema has
// them. An object whose schema names properties and is silent about others has no others.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"
#include "runtime/constrain/grammar_graph.h"
#include "runtime/constrain/json_rules.h"
#include "runtime/constrain/pattern_matcher.h"
#include "runtime/schema/flat_schema.h"
#include "runtime/schema/schema_limits.h"

namespace moepack {

class SchemaCompiler {
 public:
  // All but `warnings`, which may be null, must outlive the compiler.
  SchemaCompiler(const OrderedJson& root, GrammarGraph& graph, JsonRules& rules, SchemaWork& work,
                 std::vector<std::string>* warnings)
      : graph_(graph),
        rules_(rules),
        work_(work),
        warnings_(warnings),
        flattener_(root, work, on_warning()),
        patterns_(work, on_warning()) {}
  SchemaCompiler(const SchemaCompiler&) = delete;
  SchemaCompiler& operator=(const SchemaCompiler&) = delete;

  // A value of `schema`, a part of root, as a part of the graph. Complete after finish(), whose
  // error says it where this was too much work.
  GrammarNodeId part_of(const OrderedJson& schema);
  // kInvalidArgument, with the keyword, for what is no schema or too large.
  Status finish();
  // What "const" or "enum" of a schema without references and choices of its own leaves: the
  // values that satisfy all that stands beside them.
  Result<std::vector<OrderedJson>> constants(const OrderedJson& schema);
  // Of the root; it warns as the compiler does.
  SchemaFlattener& flattener() { return flattener_; }

 private:
  struct Property {
    std::string name;
    const OrderedJson* schema = nullptr;  // of the object's schema
    bool is_required = false;
  };

  Result<GrammarNodeId> value(const OrderedJson& schema);
  Result<GrammarNodeId> chosen(const FlatSchema& flat);
  Result<GrammarNodeId> plain(const OrderedJson& schema);
  Status add_constants(const OrderedJson& schema, std::set<std::string>& texts);
  GrammarNodeId one_of(const std::set<std::string>& texts);
  Result<GrammarNodeId> of_type(const OrderedJson& schema, const std::string& type);
  Result<GrammarNodeId> object(const OrderedJson& schema);
  Result<GrammarNodeId> object_of(const std::vector<Property>& properties,
                                  const OrderedJson& others);
  Result<GrammarNodeId> array(const OrderedJson& schema);
  Result<GrammarNodeId> string(const OrderedJson& schema);
  Result<GrammarNodeId> number(const OrderedJson& schema, bool is_integer);
  Result<std::vector<Property>> properties_of(const OrderedJson& schema);
  void warn(const std::string& keyword, const std::string& what);
  SchemaFlattener::Listener on_warning() {
    return [this](const std::string& keyword, const std::string& what) { warn(keyword, what); };
  }

  GrammarGraph& graph_;
  JsonRules& rules_;
  SchemaWork& work_;
  std::vector<std::string>* warnings_;
  std::set<std::string> warned_;
  SchemaFlattener flattener_;
  PatternMatchers patterns_;                                   // that constants are held to
  std::unordered_map<std::string, GrammarNodeId> parts_;       // by the schema's text
  std::deque<std::pair<OrderedJson, GrammarNodeId>> waiting_;  // to be built
};

// Whether a schema can be that of a whole text: an object, true or false, of a size that is taken.
Status check_form_schema(const OrderedJson& schema);
// Whether a text can end behind `start`, in a graph that is finished, and nests no deeper than is
// taken. kInvalidArgument.
Status check_form_possible(const GrammarGraph& graph, GrammarNodeId start);

}  // namespace moepack
