#include "runtime/constrain/schema_compiler.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

#include "runtime/constrain/constant_check.h"
#include "runtime/constrain/number_range.h"
#include "runtime/constrain/schema_keywords.h"
#include "runtime/constrain/string_pattern.h"

namespace moepack {
namespace {

// What counting the characters of a pattern counts for.
constexpr std::size_t kCountedPatternBytes = 4096;
constexpr std::uint32_t kSchemaNoMaximum = GrammarNode::kNoMaximum;

bool has_any(const OrderedJson& schema, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const char* key) { return schema.contains(key); });
}

// The types that a schema without "type" is meant for, judging by its keywords.
std::vector<std::string> implied_types(const OrderedJson& schema) {
  std::vector<std::string> types;
  if (has_any(schema, {"properties", "required", "additionalProperties"})) types = {"object"};
  if (has_any(schema, {"items", "prefixItems", "minItems", "maxItems"})) types.push_back("array");
  if (has_any(schema, {"minLength", "maxLength", "pattern", "format"})) types.push_back("string");
  if (has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
    types.push_back("number");
  }
  return types;
}

// Nothing but constants, whatever is beside it.
bool is_constant(const OrderedJson& schema) {
  return schema.is_object() && has_any(schema, {"const", "enum"}) &&
         !has_any(schema, {"$ref", "allOf", "anyOf", "oneOf"});
}

std::string compact(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

void SchemaCompiler::warn(const std::string& keyword, const std::string& what) {
  if (!warned_.insert(keyword).second || warnings_ == nullptr) return;
  constexpr std::size_t kMaxWarnings = 50;
  if (warnings_->size() >= kMaxWarnings) return;
  warnings_->push_back("\"" + printable(keyword, 40) + "\" of a schema " + what);
}

GrammarNodeId SchemaCompiler::part_of(const OrderedJson& schema) {
  if (!work_.is_left()) return graph_.never();
  std::string text = compact(schema);
  work_.spend(text.size());
  const auto [at, is_new] = parts_.emplace(std::move(text), 0);
  if (is_new) {
    at->second = graph_.later();
    waiting_.emplace_back(schema, at->second);
  }
  return at->second;
}

Status SchemaCompiler::finish() {
  while (!waiting_.empty()) {
    if (graph_.is_too_large() || !work_.is_left()) return too_large_schema();
    const auto [schema, node] = std::move(waiting_.front());
    waiting_.pop_front();
    MOE_ASSIGN_OR_RETURN(const GrammarNodeId built, value(schema));
    graph_.set_later(node, built);
  }
  return graph_.is_too_large() || !work_.is_left() ? too_large_schema() : Status::ok();
}

Result<GrammarNodeId> SchemaCompiler::value(const OrderedJson& schema) {
  MOE_ASSIGN_OR_RETURN(const FlatSchema flat, flattener_.flatten(schema));
  if (!flat.choices.empty()) return chosen(flat);
  return plain(flat.base);
}

// The first choice is made here, the others in what it leads to. Constants are one way together.
Result<GrammarNodeId> SchemaCompiler::chosen(const FlatSchema& flat) {
  if (flat.base == OrderedJson(false)) return graph_.never();
  const OrderedJson with = beside_first_choice(flat);
  std::vector<GrammarNodeId> parts;
  std::unordered_set<GrammarNodeId> seen;
  std::set<std::string> texts;
  const std::size_t bytes = schema_bytes(with);
  for (const OrderedJson& way : flat.choices.front()) {
    if (!with.empty() && !work_.spend(bytes + schema_bytes(way))) return too_large_schema();
    const OrderedJson whole = joined_schema(with, way);
    if (flat.choices.size() == 1 && is_constant(way)) {
      MOE_ASSIGN_OR_RETURN(const FlatSchema constant, flattener_.flatten(whole));
      MOE_RETURN_IF_ERROR(add_constants(constant.base, texts));
      continue;
    }
    const GrammarNodeId part = part_of(whole);
    if (seen.insert(part).second) parts.push_back(part);
  }
  if (parts.size() > kMostAlternatives) {
    return schema_error("anyOf", "or \"oneOf\" has " + std::to_string(parts.size()) +
                                     " different schemas; give at most " +
                                     std::to_string(kMostAlternatives) + ", or constants");
  }
  std::vector<GrammarNodeId> ways;
  for (const GrammarNodeId part : parts) ways.push_back(graph_.call(part, graph_.part_end()));
  if (!texts.empty()) ways.push_back(one_of(texts));
  return graph_.choice(ways);
}

Result<GrammarNodeId> SchemaCompiler::plain(const OrderedJson& schema) {
  if (schema.is_boolean()) {
    return schema.get<bool>() ? rules_.value(graph_.part_end()) : graph_.never();
  }
  if (schema.contains("const") || schema.contains("enum")) {
    std::set<std::string> texts;
    MOE_RETURN_IF_ERROR(add_constants(schema, texts));
    return one_of(texts);
  }
  std::vector<std::string> types = implied_types(schema);
  if (const auto type = schema.find("type"); type != schema.end()) {
    types.clear();
    for (const OrderedJson& name : type->is_array() ? *type : OrderedJson::array({*type})) {
      if (!name.is_string()) return schema_error("type", "must be a name or a list of names");
      std::string type_name = name.get<std::string>();
      if (std::find(types.begin(), types.end(), type_name) != types.end()) continue;
      if (types.size() == kMostTypeNames) return schema_error("type", "names too many types");
      types.push_back(std::move(type_name));
    }
  } else if (types.empty()) {
    return rules_.value(graph_.part_end());
  }
  std::vector<GrammarNodeId> ways;
  for (const std::string& type : types) {
    MOE_ASSIGN_OR_RETURN(const GrammarNodeId way, of_type(schema, type));
    ways.push_back(way);
  }
  return graph_.choice(ways);
}

Result<std::vector<OrderedJson>> SchemaCompiler::constants(const OrderedJson& schema) {
  return ConstantCheck(flattener_, patterns_, schema).values();
}

Status SchemaCompiler::add_constants(const OrderedJson& schema, std::set<std::string>& texts) {
  MOE_ASSIGN_OR_RETURN(const std::vector<OrderedJson> values, constants(schema));
  for (const OrderedJson& value : values) texts.insert(compact(value));
  return Status::ok();
}

GrammarNodeId SchemaCompiler::one_of(const std::set<std::string>& texts) {
  if (texts.empty()) return graph_.never();
  std::vector<std::pair<std::string, GrammarNodeId>> ways;
  for (const std::string& text : texts) ways.emplace_back(text, graph_.part_end());
  return graph_.literals(std::move(ways));
}

Result<GrammarNodeId> SchemaCompiler::of_type(const OrderedJson& schema, const std::string& type) {
  const GrammarNodeId end = graph_.part_end();
  if (type == "object") return object(schema);
  if (type == "array") return array(schema);
  if (type == "string") return string(schema);
  if (type == "number") return number(schema, false);
  if (type == "integer") return number(schema, true);
  if (type == "boolean") return graph_.literals({{"true", end}, {"false", end}});
  if (type == "null") return graph_.literal("null", end);
  if (type == "any") return rules_.value(end);
  return schema_error("type", "names no type: " + printable(type, 40));
}

Result<GrammarNodeId> SchemaCompiler::string(const OrderedJson& schema) {
  MOE_ASSIGN_OR_RETURN(const std::uint32_t min, count_keyword(schema, "minLength", 0));
  MOE_ASSIGN_OR_RETURN(const std::uint32_t max,
                       count_keyword(schema, "maxLength", kSchemaNoMaximum));
  if (min > max) return graph_.never();
  const GrammarNodeId end = graph_.part_end();
  MOE_ASSIGN_OR_RETURN(const std::optional<StringPattern> pattern,
                       pattern_keyword(schema, on_warning()));
  if (!pattern.has_value()) return rules_.string(min, max, end);
  const bool has_length = min > 0 || max != kSchemaNoMaximum;
  if (has_length && !work_.spend(kCountedPatternBytes)) return too_large_schema();
  if (const auto counted = pattern->json_string(graph_, rules_, min, max, end)) return *counted;
  warn("minLength", "and \"maxLength\" are ignored beside a \"pattern\" of such size");
  return pattern->json_string(graph_, rules_, 0, kSchemaNoMaximum, end).value_or(graph_.never());
}

Result<GrammarNodeId> SchemaCompiler::number(const OrderedJson& schema, bool is_integer) {
  std::optional<NumberBound> low, high;
  const auto bound = [&](const char* key, const char* twin, bool is_low) -> Status {
    const auto found = schema.find(key);
    if (found == schema.end() || found->is_null()) return Status::ok();
    bool is_excluded = std::string_view(key).substr(0, 9) == "exclusive";
    if (found->is_boolean()) return Status::ok();  // draft 4, read with its twin
    if (!found->is_number()) return schema_error(key, "must be a number");
    const auto other = schema.find(twin);
    if (!is_excluded && other != schema.end() && other->is_boolean()) {
      is_excluded = other->get<bool>();
    }
    const std::optional<NumberBound> value = is_low ? NumberBound::lowest(*found, is_excluded)
                                                    : NumberBound::highest(*found, is_excluded);
    if (!value) {
      warn(key, "of such size is ignored");
      return Status::ok();
    }
    std::optional<NumberBound>& kept = is_low ? low : high;
    const int order = kept ? value->compare(*kept) * (is_low ? 1 : -1) : 1;
    if (order > 0 || (order == 0 && is_excluded)) kept = value;
    return Status::ok();
  };
  MOE_RETURN_IF_ERROR(bound("minimum", "exclusiveMinimum", true));
  MOE_RETURN_IF_ERROR(bound("exclusiveMinimum", "minimum", true));
  MOE_RETURN_IF_ERROR(bound("maximum", "exclusiveMaximum", false));
  MOE_RETURN_IF_ERROR(bound("exclusiveMaximum", "maximum", false));
  if (low || high) return number_between(graph_, low, high, is_integer, graph_.part_end());
  return is_integer ? rules_.integer(graph_.part_end()) : rules_.number(graph_.part_end());
}

}  // namespace moepack
