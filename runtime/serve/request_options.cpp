#include "runtime/serve/request_options.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/request_limits.h"

namespace moepack {

void refuse_field(const BodyFields& fields, std::string_view name, const std::string& what) {
  fields.fail(name, fields.place_of(name) + " " + what);
}

void refuse_at(RequestFault& fault, const std::string& what, const std::string& place) {
  fault.set(invalid_request(place + " " + what, place));
}

std::string_view text_or_empty(const BodyFields& fields, std::string_view name) {
  const OrderedJson* found = fields.find(name);
  if (found == nullptr || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

std::optional<std::uint64_t> read_count(const BodyFields& fields, std::string_view name) {
  const auto value = fields.whole(name, 0, std::numeric_limits<std::int64_t>::max());
  if (!value.has_value()) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::vector<std::string> read_stop_texts(const BodyFields& fields, std::string_view key) {
  const OrderedJson* found = fields.find(key);
  std::vector<std::string> texts;
  if (found == nullptr) return texts;
  if (!found->is_array()) {
    add_stop_text(fields, key, *found, texts);
    return texts;
  }
  for (const OrderedJson& text : *found) {
    add_stop_text(fields, key, text, texts);
    if (fields.fault().is_set()) return {};
  }
  return texts;
}

ResponseFormat read_text_format(const OrderedJson& format, const std::string& path,
                                RequestFault& fault) {
  ResponseFormat result;
  const BodyFields fields(format, path + ".", fault);
  const std::string type = fields.text("type").value_or("text");
  if (type == "text") return result;
  const OrderedJson* schema = fields.find("schema");
  if (schema != nullptr && !schema->is_object() && !schema->is_boolean()) {
    refuse_field(fields, "schema", "must be a JSON schema: an object");
    return result;
  }
  if (type == "json_schema" || (type == "json_object" && schema != nullptr)) {
    if (schema == nullptr) {
      refuse_field(fields, "schema", "is missing");
      return result;
    }
    result.kind = ResponseFormat::Kind::kJsonSchema;
    result.schema = *schema;
  } else if (type == "json_object") {
    result.kind = ResponseFormat::Kind::kJsonObject;
  } else {
    refuse_field(fields, "type", "must be text, json_object or json_schema");
  }
  return result;
}

void set_reasoning_effort(ChatRequest& chat, const std::string& effort) {
  if (effort == "none") {
    chat.thinks = false;
    return;
  }
  std::string step = effort;
  if (effort == "minimal") step = "low";
  if (effort == "xhigh" || effort == "max") step = "high";
  chat.conversation.template_arguments["reasoning_effort"] = step;
}

void read_template_arguments(const BodyFields& fields, ChatRequest& chat) {
  const OrderedJson* arguments = fields.object("chat_template_kwargs");
  if (arguments == nullptr) return;
  check_template_arguments(fields, *arguments);
  if (fields.fault().is_set()) return;
  for (const auto& [name, value] : arguments->items()) {
    const bool is_switch = name == "enable_thinking" || name == "thinking";
    if (is_switch && value.is_boolean()) chat.thinks = value.get<bool>();
    chat.conversation.template_arguments[name] = value;
  }
}

void add_allowed(ToolChoice& choice, std::string name) {
  std::vector<std::string>& names = choice.allowed;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
}

void settle_allowed(ToolChoice& choice, const BodyFields& fields, std::string_view field) {
  if (!choice.allowed.empty()) return;
  if (choice.kind == ToolChoice::Kind::kRequired) {
    refuse_field(fields, field, "names no function of tools, and a call is required");
  }
  choice.kind = ToolChoice::Kind::kNone;
}

ToolSpec function_tool(std::string name, std::string description, OrderedJson parameters) {
  ToolSpec tool;
  tool.name = std::move(name);
  tool.description = std::move(description);
  tool.parameters = std::move(parameters);
  OrderedJson function = OrderedJson::object();
  function["name"] = tool.name;
  function["description"] = tool.description;
  if (tool.parameters.is_object()) {
    function["parameters"] = tool.parameters;
  } else {
    function["parameters"] = {{"type", "object"}, {"properties", OrderedJson::object()}};
  }
  tool.wire = OrderedJson::object();
  tool.wire["type"] = "function";
  tool.wire["function"] = std::move(function);
  return tool;
}

void add_tool(std::vector<ToolSpec>& tools, ToolSpec tool) {
  if (!offers_tool(tools, tool.name)) tools.push_back(std::move(tool));
}

bool offers_tool(const std::vector<ToolSpec>& tools, std::string_view name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const ToolSpec& tool) { return tool.name == name; });
}

}  // namespace moepack
