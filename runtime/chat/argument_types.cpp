#include "runtime/chat/argument_types.h"

#include <algorithm>
#include <optional>

#include "runtime/chat/lenient_json.h"

namespace moepack {
namespace {

constexpr int kDeepestSchema = 8;

std::string_view trim_argument(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

const OrderedJson* find_schema_member(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() ? nullptr : &*found;
}

// "#/$defs/NAME" within the parameters; null for anything else.
const OrderedJson* resolve_schema_reference(const OrderedJson& parameters, const OrderedJson& to) {
  if (!to.is_string()) return nullptr;
  std::string_view path = to.get_ref<const std::string&>();
  if (!path.starts_with("#/")) return nullptr;
  path.remove_prefix(2);
  const OrderedJson* at = &parameters;
  while (at && !path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    at = find_schema_member(*at, path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return at;
}

// The types collected so far; is_string only where one says so.
struct CollectedTypes {
  ArgumentType type{.is_string = false};
  const OrderedJson* parameters = nullptr;
};

void collect_type_name(std::string_view name, ArgumentType& type) {
  if (name == "string") type.is_string = true;
  if (name == "null") type.is_nullable = true;
  if (name == "boolean") type.is_boolean = true;
  if (name == "integer" || name == "number") type.is_number = true;
  if (name == "object" || name == "array") type.is_structure = true;
}

void collect_type_of_value(const OrderedJson& value, ArgumentType& type) {
  if (value.is_string()) type.is_string = true;
  if (value.is_null()) type.is_nullable = true;
  if (value.is_boolean()) type.is_boolean = true;
  if (value.is_number()) type.is_number = true;
  if (value.is_structured()) type.is_structure = true;
}

void collect_types(const OrderedJson& schema, int depth, CollectedTypes& into) {
  if (!schema.is_object() || depth > kDeepestSchema) return;
  if (const auto* reference = find_schema_member(schema, "$ref")) {
    const OrderedJson* to = resolve_schema_reference(*into.parameters, *reference);
    if (to) collect_types(*to, depth + 1, into);
  }
  if (const auto* name = find_schema_member(schema, "type")) {
    if (name->is_string()) collect_type_name(name->get_ref<const std::string&>(), into.type);
    if (name->is_array()) {
      for (const auto& one : *name) {
        if (one.is_string()) collect_type_name(one.get_ref<const std::string&>(), into.type);
      }
    }
  } else {
    if (const auto* values = find_schema_member(schema, "enum"); values && values->is_array()) {
      for (const auto& value : *values) collect_type_of_value(value, into.type);
    }
    if (const auto* value = find_schema_member(schema, "const")) {
      collect_type_of_value(*value, into.type);
    }
    if (schema.contains("properties") || schema.contains("items")) into.type.is_structure = true;
  }
  if (const auto* nullable = find_schema_member(schema, "nullable")) {
    into.type.is_nullable |= nullable->is_boolean() && nullable->get<bool>();
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto* choices = find_schema_member(schema, key);
    if (!choices || !choices->is_array()) continue;
    for (const auto& choice : *choices) collect_types(choice, depth + 1, into);
  }
}

std::optional<std::string> boolean_json(std::string_view text) {
  if (text == "true" || text == "True" || text == "1") return "true";
  if (text == "false" || text == "False" || text == "0") return "false";
  return std::nullopt;
}

}  // namespace

ArgumentType argument_type(const ToolSpec* tool, std::string_view argument) {
  if (!tool) return {};
  const OrderedJson* properties = find_schema_member(tool->parameters, "properties");
  const OrderedJson* schema = properties ? find_schema_member(*properties, argument) : nullptr;
  if (!schema) return {};
  CollectedTypes types{.parameters = &tool->parameters};
  collect_types(*schema, 0, types);
  ArgumentType& type = types.type;
  type.is_known = true;
  if (!type.is_boolean && !type.is_number && !type.is_structure) type.is_string = true;
  return type;
}

bool admits_argument(const ToolSpec* tool, std::string_view argument) {
  if (!tool) return true;
  const OrderedJson* properties = find_schema_member(tool->parameters, "properties");
  if (!properties || !properties->is_object() || properties->empty()) return true;
  if (properties->contains(std::string(argument))) return true;
  const OrderedJson* others = find_schema_member(tool->parameters, "additionalProperties");
  return others && (others->is_object() || (others->is_boolean() && others->get<bool>()));
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "null" || text == "None";
}

std::string argument_json(const ArgumentType& type, std::string_view text) {
  const std::string_view trimmed = trim_argument(text);
  if (type.is_nullable && is_null_word(type.is_only_string() ? text : trimmed)) return "null";
  if (type.is_number && is_json_number(trimmed)) return std::string(trimmed);
  if (type.is_boolean) {
    if (auto boolean = boolean_json(trimmed)) return *boolean;
  }
  if (type.is_structure && !trimmed.empty()) {
    const bool is_bracket = trimmed[0] == '{' || trimmed[0] == '[' || trimmed[0] == '(';
    auto json = is_bracket ? compact_json(trimmed) : std::nullopt;
    if (json) return *json;
  }
  return json_quoted(text);
}

std::string any_value_json(std::string_view text) {
  auto json = compact_json(text);
  return json ? *json : json_quoted(text);
}

}  // namespace moepack
