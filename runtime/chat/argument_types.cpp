#include "runtime/chat/argument_types.h"

#include "runtime/chat/lenient_json.h"
#include "runtime/schema/flat_schema.h"
#include "runtime/schema/tool_parameters.h"

namespace moepack {
namespace {

std::string_view trim_argument(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

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

// One schema without references and choices.
void collect_types(const OrderedJson& schema, ArgumentType& type) {
  if (!schema.is_object()) return;
  const auto member = [&](const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? nullptr : &*found;
  };
  if (const auto* name = member("type")) {
    for (const OrderedJson& one : name->is_array() ? *name : OrderedJson::array({*name})) {
      if (one.is_string()) collect_type_name(one.get_ref<const std::string&>(), type);
    }
  } else {
    if (const auto* values = member("enum"); values && values->is_array()) {
      for (const OrderedJson& value : *values) collect_type_of_value(value, type);
    }
    if (const auto* value = member("const")) collect_type_of_value(*value, type);
    if (schema.contains("properties") || schema.contains("items")) type.is_structure = true;
  }
  if (const auto* nullable = member("nullable")) {
    type.is_nullable |= nullable->is_boolean() && nullable->get<bool>();
  }
}

ArgumentType type_of_schema(const OrderedJson& schema, SchemaFlattener& flattener) {
  ArgumentType type{.is_string = false};
  const Result<PlainWays> plain = flattener.plain_ways(schema);
  if (plain.is_ok()) {
    for (const OrderedJson& way : plain.value().ways) collect_types(way, type);
    type.is_string = type.is_string || !plain.value().is_complete;
  } else {
    collect_types(schema, type);
  }
  if (!type.is_boolean && !type.is_number && !type.is_structure) type.is_string = true;
  return type;
}

// What the schema says at its root.
ToolParameters parameters_as_they_stand(const OrderedJson& schema) {
  ToolParameters parameters;
  const auto named = schema.find("properties");
  if (named != schema.end() && named->is_object()) {
    for (const auto& [name, of_name] : named->items()) parameters.named.push_back({name, of_name});
  }
  const auto others = schema.find("additionalProperties");
  if (others != schema.end()) parameters.others = *others;
  return parameters;
}

std::optional<std::string> boolean_json(std::string_view text) {
  if (text == "true" || text == "True" || text == "1") return "true";
  if (text == "false" || text == "False" || text == "0") return "false";
  return std::nullopt;
}

}  // namespace

ArgumentTypes::ArgumentTypes(const OrderedJson& parameters) {
  if (!parameters.is_object()) return;
  SchemaWork work;
  SchemaFlattener flattener(parameters, work);
  const Result<ToolParameters> resolved = tool_parameters(parameters, flattener);
  const ToolParameters view =
      resolved.is_ok() ? resolved.value() : parameters_as_they_stand(parameters);
  for (const ToolParameter& one : view.named) {
    named_.emplace(one.name, type_of_schema(one.schema, flattener));
  }
  const OrderedJson others = view.others.value_or(OrderedJson(view.named.empty()));
  admits_others_ = others.is_object() || others == OrderedJson(true);
  allows_others_ = view.others.has_value() && admits_others_;
  if (others.is_object()) others_ = type_of_schema(others, flattener);
}

ArgumentType ArgumentTypes::of(std::string_view argument) const {
  const auto found = named_.find(argument);
  return found != named_.end() ? found->second : others_.value_or(ArgumentType());
}

bool ArgumentTypes::admits(std::string_view argument) const {
  return admits_others_ || named_.find(argument) != named_.end();
}

bool ArgumentTypes::may_repeat(std::string_view argument) const {
  return allows_others_ && named_.find(argument) == named_.end();
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
