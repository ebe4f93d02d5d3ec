#include "runtime/serve/responses_input.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "formats/base/status.h"
#include "runtime/serve/answer_writer.h"
#include "runtime/serve/late_system.h"
#include "runtime/serve/request_options.h"

namespace moepack {
namespace {

void join_text(std::string& text, std::string_view more, std::string_view separator) {
  if (more.empty()) return;
  if (!text.empty()) text.append(separator);
  text.append(more);
}

enum class Pictures { kRefused, kNamed };

std::string response_part_text(const OrderedJson& part, const std::string& path, Pictures pictures,
                               RequestFault& fault) {
  if (!part.is_object()) {
    refuse_at(fault, "must be an object with a type", path);
    return {};
  }
  const BodyFields fields(part, path + ".", fault);
  const std::string_view type = text_or_empty(fields, "type");
  if (type == "refusal") return fields.text("refusal").value_or("");
  const bool is_text = type.empty() || type.ends_with("text");
  if (is_text) return fields.text("text").value_or("");
  if (pictures == Pictures::kNamed) {
    return "[" + printable(type, 40) + " omitted: this model reads text only]";
  }
  refuse_field(fields, "type", "is " + printable(type, 40) + ": this model reads text only");
  return {};
}

// A text, or a list of parts.
std::string response_content_text(const OrderedJson* content, const std::string& path,
                                  Pictures pictures, std::string_view separator,
                                  RequestFault& fault) {
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    refuse_at(fault, "must be a text or a list of parts", path);
    return {};
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    join_text(text, response_part_text((*content)[i], element_place(path, i), pictures, fault),
              separator);
  }
  return text;
}

}  // namespace

void ResponsesInput::add_instructions(std::string_view text) {
  if (text.empty()) return;
  std::vector<ChatMessage>& messages = conversation_.messages;
  if (messages.empty()) {
    messages.emplace_back();
    messages.back().role = ChatRole::kSystem;
  }
  join_text(messages.back().content, text, "\n\n");
}

void ResponsesInput::add_user(std::string text) {
  ChatMessage message;
  message.role = ChatRole::kUser;
  message.content = std::move(text);
  conversation_.messages.push_back(std::move(message));
}

ChatMessage& ResponsesInput::assistant() {
  std::vector<ChatMessage>& messages = conversation_.messages;
  if (messages.empty() || messages.back().role != ChatRole::kAssistant) {
    messages.emplace_back();
    messages.back().role = ChatRole::kAssistant;
  }
  return messages.back();
}

void ResponsesInput::add_item(const OrderedJson& item, const std::string& path) {
  if (!item.is_object()) return refuse_at(fault_, "must be an object", path);
  const BodyFields fields(item, path + ".", fault_);
  const std::string type = fields.text("type").value_or("message");
  if (type == "message") {
    add_message(fields);
  } else if (type == "function_call" || type == "custom_tool_call") {
    add_call(fields, type == "custom_tool_call");
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    add_call_output(fields);
  } else if (type == "reasoning") {
    add_reasoning(fields);
  } else if (type == "item_reference") {
    refuse_field(fields, "type",
                 "is item_reference: nothing is kept between requests, send the item");
  }
}

void ResponsesInput::add_message(const BodyFields& fields) {
  const std::string role = fields.text("role").value_or("");
  if (role.empty()) {
    return refuse_field(fields, "role", "is missing: user, assistant, system or developer");
  }
  const OrderedJson* content = fields.find("content");
  const std::string path = fields.place_of("content");
  if (role == "assistant") {
    assistant().content += response_content_text(content, path, Pictures::kNamed, "", fault_);
    return;
  }
  const std::string text = response_content_text(content, path, Pictures::kRefused, "\n", fault_);
  if (role != "system" && role != "developer") return add_user(text);
  const std::vector<ChatMessage>& messages = conversation_.messages;
  if (messages.empty() || messages.back().role == ChatRole::kSystem) return add_instructions(text);
  add_late_system_text(conversation_, text);
}

void ResponsesInput::add_call(const BodyFields& fields, bool is_custom) {
  ToolCall call;
  call.id = fields.text("call_id").value_or("");
  call.name = fields.text("name").value_or("");
  if (call.name.empty())
    return refuse_field(fields, "name", "is missing: the name of the function");
  if (is_custom) {
    OrderedJson arguments = OrderedJson::object();
    arguments["input"] = fields.text("input").value_or("");
    call.arguments = dump_json(arguments);
  } else {
    call.arguments = fields.text("arguments").value_or("{}");
  }
  assistant().calls.push_back(std::move(call));
}

void ResponsesInput::add_call_output(const BodyFields& fields) {
  ChatMessage message;
  message.role = ChatRole::kTool;
  message.tool_call_id = fields.text("call_id").value_or("");
  const OrderedJson* output = fields.find("output");
  if (output != nullptr && output->is_object()) {
    message.content = dump_json(*output);
  } else {
    message.content =
        response_content_text(output, fields.place_of("output"), Pictures::kNamed, "\n", fault_);
  }
  conversation_.messages.push_back(std::move(message));
}

void ResponsesInput::add_reasoning(const BodyFields& fields) {
  std::string text = response_content_text(fields.find("content"), fields.place_of("content"),
                                           Pictures::kNamed, "", fault_);
  if (text.empty()) {
    text = response_content_text(fields.find("summary"), fields.place_of("summary"),
                                 Pictures::kNamed, "\n", fault_);
  }
  if (text.empty()) return;
  join_text(assistant().reasoning, text, "\n");
}

}  // namespace moepack
