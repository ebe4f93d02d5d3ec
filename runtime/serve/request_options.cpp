#include "runtime/serve/request_options.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

namespace moepack {

void read_sampling(const RequestFields& fields, SamplerOptions& options) {
  if (const auto value = fields.number("temperature", 0, 2)) {
    options.temperature = static_cast<float>(*value);
  }
  if (const auto value = fields.number("top_p", 0, 1)) options.top_p = static_cast<float>(*value);
  if (const auto value = fields.number("min_p", 0, 1)) options.min_p = static_cast<float>(*value);
  if (const auto value = fields.integer("top_k")) {
    constexpr std::int64_t kHighest = std::numeric_limits<std::int32_t>::max();
    options.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(*value, 0, kHighest));
  }
  if (const auto value = fields.integer("seed")) {
    options.seed = static_cast<std::uint64_t>(*value);
  }
}

std::vector<std::string> read_stop_texts(const RequestFields& fields, std::string_view key) {
  const OrderedJson* found = fields.find(key);
  std::vector<std::string> texts;
  if (found == nullptr) return texts;
  if (found->is_string()) {
    if (!found->get_ref<const std::string&>().empty()) texts.push_back(found->get<std::string>());
    return texts;
  }
  if (!found->is_array()) {
    fields.refuse(key, "must be a list of texts");
    return texts;
  }
  for (const OrderedJson& text : *found) {
    if (!text.is_string()) {
      fields.refuse(key, "must be a list of texts");
      return {};
    }
    if (!text.get_ref<const std::string&>().empty()) texts.push_back(text.get<std::string>());
  }
  return texts;
}

ResponseFormat read_response_format(const OrderedJson& format, const std::string& path,
                                    RequestProblem& problem) {
  ResponseFormat result;
  const RequestFields fields(format, path, problem);
  const std::string type = fields.text("type").value_or("text");
  if (type == "text") return result;
  const OrderedJson* schema = fields.find("schema");
  if (schema != nullptr && !schema->is_object() && !schema->is_boolean()) {
    fields.refuse("schema", "must be a JSON schema: an object");
    return result;
  }
  if (type == "json_schema" || (type == "json_object" && schema != nullptr)) {
    if (schema == nullptr) {
      fields.refuse("schema", "is missing");
      return result;
    }
    result.kind = ResponseFormat::Kind::kJsonSchema;
    result.schema = *schema;
  } else if (type == "json_object") {
    result.kind = ResponseFormat::Kind::kJsonObject;
  } else {
    fields.refuse("type", "must be text, json_object or json_schema");
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

void read_template_arguments(const RequestFields& fields, ChatRequest& chat) {
  const OrderedJson* arguments = fields.object("chat_template_kwargs");
  if (arguments == nullptr) return;
  for (const auto& [name, value] : arguments->items()) {
    const bool is_switch = name == "enable_thinking" || name == "thinking";
    if (is_switch && value.is_boolean()) chat.thinks = value.get<bool>();
    chat.conversation.template_arguments[name] = value;
  }
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
