#include "runtime/schema/flat_schema.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "runtime/schema/schema_merge.h"

namespace moepack {
namespace {

constexpr int kMaxFlattening = 400;
constexpr int kMostNestedChoices = 16;
constexpr std::size_t kMostPlainWays = 4096;
// What looking at a keyword and at a reference counts for beside copying: a reference is looked for
// among all names.
constexpr std::size_t kKeywordBytes = 16;
constexpr std::size_t kReferenceBytes = 512;

// Keywords that are understood or that say nothing about a value.
bool is_known_keyword(const std::string& key) {
  static constexpr std::string_view kKnown[] = {"$ref",
                                                "allOf",
                                                "anyOf",
                                                "oneOf",
                                                "type",
                                                "enum",
                                                "const",
                                                "properties",
                                                "required",
                                                "additionalProperties",
                                                "items",
                                                "prefixItems",
                                                "additionalItems",
                                                "minItems",
                                                "maxItems",
                                                "minLength",
                                                "maxLength",
                                                "pattern",
                                                "minimum",
                                                "maximum",
                                                "exclusiveMinimum",
                                                "exclusiveMaximum",
                                                "nullable",
                                                "$schema",
                                                "$id",
                                                "id",
                                                "$anchor",
                                                "$comment",
                                                "$defs",
                                                "definitions",
                                                "$vocabulary",
                                                "title",
                                                "description",
                                                "default",
                                                "example",
                                                "examples",
                                                "deprecated",
                                                "readOnly",
                                                "writeOnly",
                                                "format",
                                                "contentEncoding",
                                                "contentMediaType",
                                                "discriminator",
                                                "strict",
                                                "name",
                                                "xml",
                                                "externalDocs"};
  return std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown) ||
         key.rfind("x-", 0) == 0;
}

// Keywords that plain() and what it calls look at; all others are dropped as soon as possible.
bool is_used_keyword(const std::string& key) {
  static constexpr std::string_view kUsed[] = {"type",
                                               "enum",
                                               "const",
                                               "properties",
                                               "required",
                                               "items",
                                               "minItems",
                                               "maxItems",
                                               "prefixItems",
                                               "additionalItems",
                                               "minLength",
                                               "maxLength",
                                               "pattern",
                                               "minimum",
                                               "maximum",
                                               "nullable",
                                               "format",
                                               "exclusiveMinimum",
                                               "exclusiveMaximum",
                                               "additionalProperties"};
  return std::find(std::begin(kUsed), std::end(kUsed), key) != std::end(kUsed);
}

}  // namespace

Status schema_error(const std::string& keyword, std::string_view what) {
  return invalid_argument("the schema's \"" + printable(keyword, 40) + "\" " + std::string(what));
}

OrderedJson beside_first_choice(const FlatSchema& flat) {
  OrderedJson beside = OrderedJson::array();
  if (flat.base.is_object() && !flat.base.empty()) beside.push_back(flat.base);
  for (std::size_t i = 1; i < flat.choices.size(); ++i) {
    beside.push_back({{"anyOf", flat.choices[i]}});
  }
  return beside;
}

OrderedJson joined_schema(const OrderedJson& beside, const OrderedJson& way) {
  if (beside.empty()) return way;
  OrderedJson all = beside;
  all.push_back(way);
  return {{"allOf", std::move(all)}};
}

Result<FlatSchema> SchemaFlattener::flatten(const OrderedJson& schema) {
  FlatSchema flat;
  int budget = kMaxFlattening;
  MOE_RETURN_IF_ERROR(flatten_into(schema, flat, budget));
  return flat;
}

Status SchemaFlattener::flatten_into(const OrderedJson& schema, FlatSchema& flat, int& budget) {
  if (--budget < 0) return schema_error("$ref", "leads to itself, or \"allOf\" is too deep");
  if (!schema.is_object()) {
    MOE_ASSIGN_OR_RETURN(flat.base, merge_schemas(flat.base, schema, nullptr));
    return Status::ok();
  }
  if (!work_.spend(kKeywordBytes * schema.size())) return too_large_schema();
  OrderedJson rest = OrderedJson::object();
  for (const auto& [key, value] : schema.items()) {
    if (key == "$ref") {
      MOE_RETURN_IF_ERROR(flatten_reference(value, flat, budget));
    } else if (key == "allOf") {
      if (!value.is_array()) return schema_error(key, "must be a list of schemas");
      for (const OrderedJson& part : value) MOE_RETURN_IF_ERROR(flatten_into(part, flat, budget));
    } else if (key == "anyOf" || key == "oneOf") {
      if (!value.is_array()) return schema_error(key, "must be a list of schemas");
      if (!work_.spend(schema_bytes(value))) return too_large_schema();
      flat.choices.push_back(value);
    } else if (is_used_keyword(key)) {
      if (!work_.spend(schema_bytes(value))) return too_large_schema();
      rest[key] = value;
    } else if (!is_known_keyword(key)) {
      warn(key, "is ignored");
    }
  }
  return merge_keywords(std::move(rest), flat);
}

Status SchemaFlattener::flatten_reference(const OrderedJson& reference, FlatSchema& flat,
                                          int& budget) {
  if (!reference.is_string()) return schema_error("$ref", "must be a text");
  if (!work_.spend(kReferenceBytes)) return too_large_schema();
  const std::string name = reference.get<std::string>();
  const OrderedJson* target = references_.find(name);
  if (target != nullptr) return flatten_into(*target, flat, budget);
  if (name.empty() || name.front() == '#') {
    return schema_error("$ref", "names nothing: " + printable(name, 80));
  }
  warn("$ref", "that leaves the document is ignored");
  return Status::ok();
}

Status SchemaFlattener::merge_keywords(OrderedJson keywords, FlatSchema& flat) {
  if (!work_.spend(merge_bytes(flat.base, keywords))) return too_large_schema();
  const bool is_nullable = keywords.value("nullable", OrderedJson()) == OrderedJson(true);
  if (const auto type = keywords.find("type"); is_nullable && type != keywords.end()) {
    OrderedJson types = type->is_array() ? *type : OrderedJson::array({*type});
    types.push_back("null");
    *type = std::move(types);
  }
  std::vector<std::string> dropped;
  MOE_ASSIGN_OR_RETURN(flat.base, merge_schemas(flat.base, keywords, &dropped));
  for (const std::string& key : dropped) warn(key, "is given twice; one is ignored");
  return Status::ok();
}

Result<PlainWays> SchemaFlattener::plain_ways(const OrderedJson& schema) {
  PlainWays plain;
  MOE_RETURN_IF_ERROR(add_ways(schema, 0, plain));
  return plain;
}

Status SchemaFlattener::add_ways(const OrderedJson& schema, int depth, PlainWays& plain) {
  MOE_ASSIGN_OR_RETURN(FlatSchema flat, flatten(schema));
  if (flat.base == OrderedJson(false)) return Status::ok();
  if (flat.choices.empty()) {
    plain.ways.push_back(std::move(flat.base));
    return Status::ok();
  }
  const OrderedJson beside = beside_first_choice(flat);
  const std::size_t bytes = schema_bytes(beside);
  for (const OrderedJson& way : flat.choices.front()) {
    if (depth >= kMostNestedChoices || plain.ways.size() >= kMostPlainWays) {
      plain.is_complete = false;
      break;
    }
    if (!work_.spend(bytes + schema_bytes(way))) return too_large_schema();
    MOE_RETURN_IF_ERROR(add_ways(joined_schema(beside, way), depth + 1, plain));
  }
  return Status::ok();
}

}  // namespace moepack
