// Objects and arrays of SchemaCompiler.
#include <algorithm>
#include <unordered_map>

#include "runtime/constrain/key_choice.h"
#include "runtime/constrain/schema_compiler.h"
#include "runtime/constrain/schema_keywords.h"
#include "runtime/schema/item_schemas.h"

namespace moepack {

namespace {

const OrderedJson& any_schema() {
  static const OrderedJson kTrue = true;
  return kTrue;
}

const OrderedJson& no_schema() {
  static const OrderedJson kFalse = false;
  return kFalse;
}

}  // namespace

// The named properties in order, then those that are required without being named.
Result<std::vector<SchemaCompiler::Property>> SchemaCompiler::properties_of(
    const OrderedJson& schema) {
  std::vector<Property> properties;
  const auto named = schema.find("properties");
  if (named != schema.end() && !named->is_object()) {
    return invalid_argument("the schema's \"properties\" must be an object");
  }
  const auto additional = schema.find("additionalProperties");
  if (named != schema.end()) {
    for (const auto& [name, of_name] : named->items()) properties.push_back({name, &of_name});
  }
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return properties;
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < properties.size(); ++i) places[properties[i].name] = i;
  for (const OrderedJson& name : *required) {
    if (!name.is_string()) return invalid_argument("the schema's \"required\" must list names");
    const auto [at, is_new] = places.emplace(name.get<std::string>(), properties.size());
    if (is_new) {
      properties.push_back({at->first, additional != schema.end() ? &*additional : &any_schema()});
    }
    properties[at->second].is_required = true;
  }
  return properties;
}

Result<GrammarNodeId> SchemaCompiler::object(const OrderedJson& schema) {
  const auto named = schema.find("properties");
  const bool are_named = named != schema.end() && named->is_object() && !named->empty();
  const auto additional = schema.find("additionalProperties");
  const OrderedJson& unnamed = are_named ? no_schema() : any_schema();
  MOE_ASSIGN_OR_RETURN(const std::vector<Property> properties, properties_of(schema));
  return object_of(properties, additional != schema.end() ? *additional : unnamed);
}

// From the last property to the first: `after` a property there is a comma and a later property, up
// to the next that is required, or the end.
Result<GrammarNodeId> SchemaCompiler::object_of(const std::vector<Property>& properties,
                                                const OrderedJson& others) {
  const GrammarNodeId end = graph_.part_end();
  const GrammarNodeId close = rules_.space(graph_.literal("}", end));
  GrammarNodeId key = graph_.never();    // a property from here on, its key first
  GrammarNodeId other = graph_.never();  // those of them that `named` does not have
  KeyChoice named(graph_);
  GrammarNodeId after = close;
  if (others != OrderedJson(false)) {
    std::vector<std::string> names;
    for (const Property& property : properties) names.push_back(property.name);
    after = graph_.later();
    key = other = rules_.other_pair(names, part_of(others), after);
    graph_.set_later(after, graph_.choice({close, graph_.literal(",", rules_.space(key))}));
  }
  bool may_close = true;
  const OrderedJson* last = nullptr;
  GrammarNodeId part = graph_.never();
  for (std::size_t i = properties.size(); i-- > 0;) {
    const Property& property = properties[i];
    if (graph_.is_too_large() || !work_.is_left()) return too_large_schema();
    const bool is_known = property.schema == last;  // many that are required have one schema
    if (!is_known) part = part_of(*property.schema);
    last = property.schema;
    if (property.is_required || named.is_full()) {
      other = property.is_required ? graph_.never() : key;
      named.clear();
    }
    key = named.add(JsonRules::quoted(property.name), rules_.colon_and(part, after));
    if (other != graph_.never()) key = graph_.choice({key, other});
    may_close = may_close && !property.is_required;
    const GrammarNodeId more = graph_.literal(",", rules_.space(key));
    after = may_close ? graph_.choice({close, more}) : more;
  }
  if (key == graph_.never()) return graph_.literal("{", close);
  const GrammarNodeId first = rules_.space(key);
  return graph_.literal("{", may_close ? graph_.choice({close, first}) : first);
}

Result<GrammarNodeId> SchemaCompiler::array(const OrderedJson& schema) {
  constexpr std::uint32_t kNone = GrammarNode::kNoMaximum;
  MOE_ASSIGN_OR_RETURN(const std::uint32_t min, count_keyword(schema, "minItems", 0));
  MOE_ASSIGN_OR_RETURN(const std::uint32_t max, count_keyword(schema, "maxItems", kNone));
  const ItemSchemas parts = item_schemas(schema);
  const OrderedJson prefix = parts.places != nullptr ? *parts.places : OrderedJson::array();
  const OrderedJson items = parts.others != nullptr ? *parts.others : OrderedJson(true);
  if (!prefix.is_array()) return invalid_argument("the schema's \"prefixItems\" must be a list");
  if (min > max) return graph_.never();
  const GrammarNodeId end = graph_.part_end();
  const GrammarNodeId close = rules_.space(graph_.literal("]", end));
  const auto fixed = static_cast<std::uint32_t>(std::min<std::size_t>(prefix.size(), max));
  // `after` the items that have a place of their own, and one more if there are none.
  const std::uint32_t placed = std::max(fixed, 1U);
  const auto left = [&](std::uint32_t count) { return count > placed ? count - placed : 0; };
  const GrammarNodeId other = part_of(items);
  const GrammarNodeId more = graph_.literal(",", rules_.space(graph_.call(other, end)));
  GrammarNodeId after = graph_.repeat(more, left(min), max == kNone ? kNone : left(max), close);
  GrammarNodeId first = graph_.never();
  for (std::uint32_t i = placed; i-- > 0;) {
    if (graph_.is_too_large() || !work_.is_left()) return too_large_schema();
    first = rules_.space(graph_.call(i < fixed ? part_of(prefix[i]) : other, after));
    const GrammarNodeId next = graph_.literal(",", first);
    after = i >= min ? graph_.choice({close, next}) : next;
  }
  if (max == 0) return graph_.literal("[", close);
  return graph_.literal("[", min == 0 ? graph_.choice({close, first}) : first);
}

}  // namespace moepack
