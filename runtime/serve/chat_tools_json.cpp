#include "runtime/serve/chat_tools_json.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "formats/base/status.h"
#include "runtime/serve/request_limits.h"
#include "runtime/serve/request_options.h"

namespace moepack {
namespace {

// A function object: {name, description, parameters}.
ToolSpec read_function(const OrderedJson& function, const std::string& place, RequestFault& fault) {
  const BodyFields fields(function, place + ".", fault);
  ToolSpec tool;
  tool.name = read_tool_name(fields);
  tool.description = fields.text("description").value_or("");
  if (const OrderedJson* parameters = fields.object("parameters")) tool.parameters = *parameters;
  tool.wire = OrderedJson::object();
  tool.wire["type"] = "function";
  tool.wire["function"] = function;
  return tool;
}

std::optional<ToolSpec> read_tool(const OrderedJson& json, const std::string& place,
                                  RequestFault& fault) {
  if (!json.is_object()) {
    fault.set(invalid_request(place + " must be an object", place));
    return std::nullopt;
  }
  const BodyFields fields(json, place + ".", fault);
  if (fields.text("type").value_or("function") != "function") return std::nullopt;
  if (const OrderedJson* function = fields.object("function")) {
    ToolSpec tool = read_function(*function, place + ".function", fault);
    tool.wire = json;
    if (!json.contains("type")) tool.wire["type"] = "function";
    return tool;
  }
  if (fields.find("name") == nullptr) {
    fields.fail("function", fields.place_of("function") + " is missing");
    return std::nullopt;
  }
  OrderedJson function = json;  // the flat form of newer protocols
  function.erase("type");
  return read_function(function, place, fault);
}

void require_known(ToolChoice& choice, std::string name, const std::vector<ToolSpec>& tools,
                   const BodyFields& request, std::string_view field) {
  const bool is_known = std::any_of(tools.begin(), tools.end(),
                                    [&](const ToolSpec& tool) { return tool.name == name; });
  if (!is_known) {
    request.fail(field, "tool_choice names \"" + printable(name, 80) +
                            "\", which is none of the tools of this request");
  }
  add_allowed(choice, std::move(name));
}

void set_mode(ToolChoice& choice, const std::string& mode, const BodyFields& request,
              std::string_view field) {
  if (mode == "auto") {
    choice.kind = ToolChoice::Kind::kAuto;
  } else if (mode == "none") {
    choice.kind = ToolChoice::Kind::kNone;
  } else if (mode == "required" || mode == "any") {
    choice.kind = ToolChoice::Kind::kRequired;
  } else {
    request.fail(field, request.place_of(field) +
                            " must be \"none\", \"auto\", \"required\" or an object, not \"" +
                            printable(mode, 40) + "\"");
  }
}

// {"type":"function","function":{"name"}}, or flat: {"type":"function","name"}.
std::string chosen_name(const OrderedJson& json, RequestFault& fault) {
  const BodyFields fields(json, "tool_choice.", fault);
  if (const OrderedJson* function = fields.object("function")) {
    return BodyFields(*function, "tool_choice.function.", fault).text("name").value_or("");
  }
  return fields.text("name").value_or("");
}

void read_allowed(ToolChoice& choice, const OrderedJson& json, const std::vector<ToolSpec>& tools,
                  const BodyFields& request) {
  const BodyFields outer(json, "tool_choice.", request.fault());
  const OrderedJson* nested = outer.object("allowed_tools");
  const BodyFields fields(nested != nullptr ? *nested : json, "tool_choice.", request.fault());
  set_mode(choice, fields.text("mode").value_or("auto"), request, "tool_choice");
  const OrderedJson* names = fields.array("tools");
  if (names == nullptr) return;
  check_tools(fields, "tools", *names);
  if (request.fault().is_set()) return;
  for (const OrderedJson& entry : *names) {
    const BodyFields parts(entry, "tool_choice.", request.fault());
    if (text_or_empty(parts, "type") == "custom") continue;  // as in tools
    require_known(choice, chosen_name(entry, request.fault()), tools, request, "tool_choice");
  }
  settle_allowed(choice, fields, "tools");
}

void read_choice(ToolChoice& choice, const OrderedJson& json, std::string_view field,
                 const std::vector<ToolSpec>& tools, const BodyFields& request) {
  if (json.is_string()) return set_mode(choice, json.get<std::string>(), request, field);
  if (!json.is_object()) {
    return request.fail(field, request.place_of(field) + " must be a string or an object");
  }
  const BodyFields fields(json, std::string(field) + ".", request.fault());
  const std::string type = fields.text("type").value_or("function");
  if (type == "allowed_tools") return read_allowed(choice, json, tools, request);
  if (type == "custom") {
    return request.fail(field, request.place_of(field) +
                                   " asks for a custom tool: this server offers functions alone");
  }
  if (type != "function") return set_mode(choice, type, request, field);
  choice.kind = ToolChoice::Kind::kRequired;
  require_known(choice, chosen_name(json, request.fault()), tools, request, field);
}

}  // namespace

std::vector<ToolSpec> read_chat_tools(const BodyFields& request) {
  std::vector<ToolSpec> tools;
  if (const OrderedJson* list = request.array("tools")) {
    check_tools(request, "tools", *list);
    for (std::size_t i = 0; i < list->size() && !request.fault().is_set(); ++i) {
      auto tool = read_tool((*list)[i], element_place("tools", i), request.fault());
      if (tool.has_value()) tools.push_back(std::move(*tool));
    }
    return tools;
  }
  if (const OrderedJson* list = request.array("functions")) {
    check_tools(request, "functions", *list);
    for (std::size_t i = 0; i < list->size() && !request.fault().is_set(); ++i) {
      tools.push_back(read_function((*list)[i], element_place("functions", i), request.fault()));
    }
  }
  return tools;
}

ToolChoice read_tool_choice(const BodyFields& request, const std::vector<ToolSpec>& tools) {
  ToolChoice choice;
  choice.is_parallel = request.flag("parallel_tool_calls").value_or(true);
  std::string_view field = "tool_choice";
  const OrderedJson* json = request.find(field);
  if (json == nullptr) json = request.find(field = "function_call");
  if (json == nullptr) return choice;
  read_choice(choice, *json, field, tools, request);
  if (choice.kind == ToolChoice::Kind::kRequired && tools.empty()) {
    request.fail(field, request.place_of(field) + " asks for a call, but there are no tools");
  }
  return choice;
}

}  // namespace moepack
