#include "runtime/serve/chat_messages_json.h"

#include <optional>
#include <string>
#include <utility>

#include "formats/base/status.h"
#include "runtime/serve/answer_writer.h"
#include "runtime/serve/anthropic_blocks.h"

namespace moepack {
namespace {

std::optional<ChatRole> chat_role(const std::string& name) {
  if (name == "system" || name == "developer") return ChatRole::kSystem;
  if (name == "user") return ChatRole::kUser;
  if (name == "assistant") return ChatRole::kAssistant;
  if (name == "tool" || name == "function") return ChatRole::kTool;
  return std::nullopt;
}

bool is_medium(std::string_view type) {
  return type.starts_with("image") || type.starts_with("input_image") ||
         type.starts_with("input_audio") || type.starts_with("audio") ||
         type.starts_with("video") || type == "file" || type == "input_file" || type == "document";
}

// The thoughts of a part {"type":"thinking","thinking"}, {"type":"reasoning","text"|"summary"…};
// those that are encrypted or redacted have none.
std::string thoughts_of(const OrderedJson& part) {
  if (!part.is_object()) return {};
  for (const char* name : {"thinking", "reasoning", "text", "summary", "content"}) {
    const auto found = part.find(name);
    if (found == part.end()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (!found->is_array()) continue;
    std::string text;
    for (const OrderedJson& piece : *found) append_joined(text, thoughts_of(piece), "\n");
    return text;
  }
  return {};
}

// The text of one part of a message; nullopt for one that says nothing.
std::optional<std::string> part_text(const OrderedJson& part, const std::string& place,
                                     RequestFault& fault, ChatMessage& message) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) {
    fault.set(invalid_request(place + " must be an object", place));
    return std::nullopt;
  }
  const BodyFields fields(part, place + ".", fault);
  const std::string type = fields.text("type").value_or("text");
  if (type == "text" || type == "input_text" || type == "output_text") {
    return fields.text("text").value_or("");
  }
  if (type == "refusal") return fields.text("refusal").value_or("");
  if (message.role == ChatRole::kAssistant && !is_medium(type)) {
    // Thoughts; and what other servers and clients wrote for themselves: redacted_thinking,
    // tool_use beside tool_calls.
    const bool is_thought = type.starts_with("thinking") || type.starts_with("reasoning");
    if (is_thought) append_joined(message.reasoning, thoughts_of(part), "\n");
    return std::nullopt;
  }
  fields.fail("type", "content of type \"" + printable(type, 40) +
                          "\" is not supported: this server takes text alone");
  return std::nullopt;
}

void read_content(const BodyFields& fields, ChatMessage& message) {
  const OrderedJson* content = fields.find("content");
  if (content == nullptr) return;
  if (content->is_string()) {
    message.content = content->get<std::string>();
    return;
  }
  const std::string place = fields.place_of("content");
  if (!content->is_array()) {
    return fields.fail("content", place + " must be a string or an array of parts");
  }
  bool has_text = false;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const auto text = part_text((*content)[i], element_place(place, i), fields.fault(), message);
    if (!text.has_value()) continue;
    if (std::exchange(has_text, true)) message.content += "\n";
    message.content += *text;
  }
}

ToolCall read_call(const OrderedJson& json, const std::string& place, RequestFault& fault) {
  ToolCall call;
  if (!json.is_object()) {
    fault.set(invalid_request(place + " must be an object", place));
    return call;
  }
  const BodyFields fields(json, place + ".", fault);
  call.id = fields.text("id").value_or("");
  if (const OrderedJson* custom = fields.object("custom")) {
    const BodyFields parts(*custom, place + ".custom.", fault);
    call.name = parts.text("name").value_or("");
    call.arguments = dump_json({{"input", parts.text("input").value_or("")}});
    return call;
  }
  const OrderedJson* function = fields.object("function");
  if (function == nullptr) {
    fields.fail("function", fields.place_of("function") + " is missing");
    return call;
  }
  const BodyFields parts(*function, place + ".function.", fault);
  call.name = parts.text("name").value_or("");
  if (call.name.empty()) parts.fail("name", parts.place_of("name") + " is missing");
  const OrderedJson* arguments = parts.find("arguments");
  if (arguments == nullptr) {
    call.arguments = "{}";
  } else {
    call.arguments = arguments->is_string() ? arguments->get<std::string>() : dump_json(*arguments);
  }
  return call;
}

void read_calls(const BodyFields& fields, ChatMessage& message) {
  if (const OrderedJson* calls = fields.array("tool_calls")) {
    const std::string place = fields.place_of("tool_calls");
    for (std::size_t i = 0; i < calls->size(); ++i) {
      message.calls.push_back(read_call((*calls)[i], element_place(place, i), fields.fault()));
    }
  }
  if (const OrderedJson* old = fields.object("function_call")) {
    OrderedJson call = OrderedJson::object();
    call["function"] = *old;
    message.calls.push_back(read_call(call, fields.place_of("function_call"), fields.fault()));
  }
}

// Where clients put thoughts beside the content: a text, or the blocks that they came in.
std::string reasoning_text(const BodyFields& fields) {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const OrderedJson* found = fields.find(name);
    if (found != nullptr && found->is_string()) return found->get<std::string>();
  }
  for (const char* name : {"reasoning_details", "thinking_blocks"}) {
    const OrderedJson* found = fields.find(name);
    if (found == nullptr || !found->is_array()) continue;
    std::string text;
    for (const OrderedJson& block : *found) append_joined(text, thoughts_of(block), "\n");
    return text;
  }
  return {};
}

ChatMessage read_chat_message(const OrderedJson& json, const std::string& place,
                              RequestFault& fault) {
  ChatMessage message;
  if (!json.is_object()) {
    fault.set(invalid_request(place + " must be an object", place));
    return message;
  }
  const BodyFields fields(json, place + ".", fault);
  const std::string role = fields.text("role").value_or("");
  const std::optional<ChatRole> known = chat_role(role);
  if (!known.has_value()) {
    fields.fail("role", fields.place_of("role") +
                            " must be system, developer, user, assistant or tool, not \"" +
                            printable(role, 40) + "\"");
    return message;
  }
  message.role = *known;
  read_content(fields, message);
  message.name = fields.text("name").value_or("");
  if (message.role == ChatRole::kAssistant) {
    std::string beside = reasoning_text(fields);
    if (!beside.empty()) message.reasoning = std::move(beside);
    if (message.content.empty()) message.content = fields.text("refusal").value_or("");
    read_calls(fields, message);
  }
  if (message.role == ChatRole::kTool) {
    message.tool_call_id = fields.text("tool_call_id").value_or("");
  }
  return message;
}

}  // namespace

std::vector<ChatMessage> read_chat_messages(const OrderedJson& messages, RequestFault& fault) {
  std::vector<ChatMessage> read;
  read.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size() && !fault.is_set(); ++i) {
    read.push_back(read_chat_message(messages[i], element_place("messages", i), fault));
  }
  return read;
}

}  // namespace moepack
