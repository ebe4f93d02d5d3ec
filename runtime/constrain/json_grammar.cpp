#include "runtime/constrain/constraint.h"
#include "runtime/constrain/grammar.h"
#include "runtime/constrain/json_rules.h"
#include "runtime/constrain/schema_compiler.h"
#include "runtime/schema/schema_limits.h"

namespace moepack {
namespace {

// What models write before an answer: line ends.
GrammarNodeId after_line_ends(GrammarGraph& graph, GrammarNodeId next) {
  return graph.repeat(graph.literal("\n", graph.part_end()), 0, 2, next);
}

}  // namespace

Status check_form_schema(const OrderedJson& schema) {
  if (!schema.is_object() && !schema.is_boolean()) {
    return invalid_argument("a schema must be an object, true or false");
  }
  return check_schema_size(schema);
}

Status check_form_possible(const GrammarGraph& graph, GrammarNodeId start) {
  const std::uint32_t need = graph.node(start).need;
  if (need == GrammarNode::kNever) {
    return invalid_argument("no value satisfies the schema",
                            "look for an empty \"enum\", false, or limits that exclude each other");
  }
  constexpr std::uint32_t kMaxNeed = 200;
  if (need > kMaxNeed)
    return invalid_argument("the schema demands values that are nested too deep");
  return Status::ok();
}

Result<std::shared_ptr<const Grammar>> make_json_grammar(std::vector<std::string>*) {
  auto grammar = std::make_shared<Grammar>();
  GrammarGraph& graph = grammar->graph;
  JsonRules rules(graph);
  const GrammarNodeId object = rules.object(graph.part_end());
  grammar->start = after_line_ends(graph, graph.call(object, graph.text_end()));
  graph.finish();
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

Result<std::shared_ptr<const Grammar>> make_schema_grammar(const OrderedJson& schema,
                                                           std::vector<std::string>* warnings) {
  MOE_RETURN_IF_ERROR(check_form_schema(schema));
  auto grammar = std::make_shared<Grammar>();
  GrammarGraph& graph = grammar->graph;
  JsonRules rules(graph);
  SchemaWork work;
  SchemaCompiler compiler(schema, graph, rules, work, warnings);
  const GrammarNodeId value = compiler.part_of(schema);
  grammar->start = after_line_ends(graph, graph.call(value, graph.text_end()));
  MOE_RETURN_IF_ERROR(compiler.finish());
  graph.finish();
  MOE_RETURN_IF_ERROR(check_form_possible(graph, grammar->start));
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

}  // namespace moepack
