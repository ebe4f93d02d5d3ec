#include "runtime/serve/anthropic_request.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/anthropic_conversation.h"
#include "runtime/serve/request_limits.h"
#include "runtime/serve/request_options.h"

namespace moepack {
namespace {

// A tool as the model is to see it; nullopt: one that runs at Anthropic.
std::optional<ToolSpec> read_messages_tool(const OrderedJson& json, const std::string& path,
                                           RequestFault& fault) {
  if (!json.is_object()) {
    refuse_at(fault, "must be an object", path);
    return std::nullopt;
  }
  const BodyFields fields(json, path + ".", fault);
  const OrderedJson* schema = fields.object("input_schema");
  const std::string_view type = text_or_empty(fields, "type");
  if (schema == nullptr && !type.empty() && type != "custom") return std::nullopt;
  const std::string name = read_tool_name(fields);
  if (name.empty()) return std::nullopt;
  return function_tool(name, std::string(text_or_empty(fields, "description")),
                       schema == nullptr ? OrderedJson(nullptr) : *schema);
}

void read_messages_tools(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  const OrderedJson* tools = fields.array("tools");
  if (tools == nullptr) return;
  check_tools(fields, "tools", *tools);
  if (fault.is_set()) return;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    std::optional<ToolSpec> tool =
        read_messages_tool((*tools)[i], element_place("tools", i), fault);
    if (tool) add_tool(chat.conversation.tools, std::move(*tool));
  }
}

void read_messages_choice(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  const OrderedJson* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  const BodyFields parts(*choice, "tool_choice.", fault);
  const std::string type = parts.text("type").value_or("");
  ToolChoice& result = chat.tool_choice;
  result.is_parallel = !parts.flag("disable_parallel_tool_use").value_or(false);
  if (type == "none") {
    result.kind = ToolChoice::Kind::kNone;
  } else if (type == "any") {
    result.kind = ToolChoice::Kind::kRequired;
    if (chat.conversation.tools.empty()) refuse_field(parts, "type", "any needs tools");
  } else if (type == "tool") {
    result.kind = ToolChoice::Kind::kRequired;
    result.allowed = {parts.text("name").value_or("")};
    if (!offers_tool(chat.conversation.tools, result.allowed[0])) {
      refuse_field(parts, "name", "is not the name of a tool in tools");
    }
  } else if (type != "auto") {
    refuse_field(parts, "type", "must be auto, any, tool or none");
  }
}

void read_messages_thinking(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  chat.thinks = false;
  const OrderedJson* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  const BodyFields parts(*thinking, "thinking.", fault);
  const std::string type = parts.text("type").value_or("");
  if (type == "disabled") return;
  if (type == "enabled") {
    chat.thinks = true;
    chat.thinking_budget = read_count(parts, "budget_tokens");
  } else if (type == "adaptive") {
    chat.thinks = true;
  } else {
    chat.thinks.reset();  // a way of the future: as the template does
  }
}

void read_messages_output(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  if (const OrderedJson* config = fields.object("output_config")) {
    const BodyFields parts(*config, "output_config.", fault);
    if (const auto effort = read_word(parts, "effort")) set_reasoning_effort(chat, *effort);
    if (const OrderedJson* format = parts.object("format")) {
      chat.format = read_text_format(*format, parts.place_of("format"), fault);
    }
  }
  // The name it had while it was in beta.
  if (const OrderedJson* format = fields.object("output_format")) {
    chat.format = read_text_format(*format, "output_format", fault);
  }
}

void read_messages_options(const BodyFields& fields, MessagesPurpose purpose,
                           const AnswerOptions& defaults, ChatRequest& chat) {
  if (purpose == MessagesPurpose::kCount) return;
  chat.options = read_answer_options(fields, defaults);
  chat.options.choices = 1;
  // Here 0 is a limit like others: it warms the cache.
  chat.options.max_tokens = read_count(fields, "max_tokens");
  if (fields.find("max_tokens") == nullptr) {
    refuse_field(fields, "max_tokens", "is missing: how many tokens the answer may have");
  }
  if (fields.find("stop_sequences") != nullptr) {
    chat.options.stop = read_stop_texts(fields, "stop_sequences");
  }
}

// What the last message means for the answer.
void settle_last_message(Conversation& conversation, MessagesPurpose purpose, RequestFault& fault) {
  std::vector<ChatMessage>& messages = conversation.messages;
  if (messages.empty() || messages.back().role != ChatRole::kAssistant) return;
  const ChatMessage& last = messages.back();
  if (!last.calls.empty()) {
    if (purpose == MessagesPurpose::kCount) return;
    refuse_at(fault, "the last message calls a tool: its tool_result is missing", "messages");
  } else if (last.content.empty()) {
    messages.pop_back();  // nothing to go on from
  } else {
    conversation.continues_last = true;
  }
}

void read_messages_conversation(const BodyFields& fields, MessagesPurpose purpose,
                                const OrderedJson& body, ChatRequest& chat, RequestFault& fault) {
  MessagesConversation conversion(chat.conversation, chat.cache_hints, fault);
  if (const OrderedJson* system = fields.find("system")) conversion.add_system(*system);
  const OrderedJson* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) {
    return refuse_at(fault, "at least one message is required", "messages");
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    conversion.add_message((*messages)[i], element_place("messages", i));
  }
  settle_last_message(chat.conversation, purpose, fault);
  const std::size_t count = chat.conversation.messages.size();
  if (count == 0) return refuse_at(fault, "have no content", "messages");
  // Asks for hints wherever they are best: behind the last message.
  if (body.contains("cache_control") && !body["cache_control"].is_null()) {
    chat.cache_hints.push_back(count - 1);
  }
  std::vector<std::size_t>& hints = chat.cache_hints;
  hints.erase(
      std::remove_if(hints.begin(), hints.end(), [&](std::size_t hint) { return hint >= count; }),
      hints.end());
  hints.erase(std::unique(hints.begin(), hints.end()), hints.end());
}

// Tools stand in the prompt where the system message does.
void hint_after_tools(const OrderedJson& body, ChatRequest& chat) {
  const auto tools = body.find("tools");
  if (tools == body.end() || !tools->is_array()) return;
  const bool is_marked = std::any_of(tools->begin(), tools->end(), [](const OrderedJson& tool) {
    return tool.is_object() && tool.contains("cache_control") && !tool["cache_control"].is_null();
  });
  const std::vector<ChatMessage>& messages = chat.conversation.messages;
  if (!is_marked || messages.empty() || messages[0].role != ChatRole::kSystem) return;
  if (chat.cache_hints.empty() || chat.cache_hints[0] != 0) {
    chat.cache_hints.insert(chat.cache_hints.begin(), 0);
  }
}

}  // namespace

std::variant<MessagesRequest, ApiError> read_messages_request(const OrderedJson& body,
                                                              MessagesPurpose purpose,
                                                              const AnswerOptions& defaults) {
  RequestFault fault;
  MessagesRequest request;
  const BodyFields fields(body, "", fault);
  request.model = read_model_name(fields);
  request.streams = fields.flag("stream").value_or(false);
  ChatRequest& chat = request.chat;
  read_messages_conversation(fields, purpose, body, chat, fault);
  read_messages_tools(fields, chat, fault);
  hint_after_tools(body, chat);
  read_messages_choice(fields, chat, fault);
  read_messages_thinking(fields, chat, fault);
  read_messages_output(fields, chat, fault);
  read_messages_options(fields, purpose, defaults, chat);
  read_template_arguments(fields, chat);
  if (fault.is_set()) return *fault.error();
  return request;
}

}  // namespace moepack
