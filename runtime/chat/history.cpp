#include "runtime/chat/history.h"

#include <map>
#include <utility>

namespace moepack {
namespace {

constexpr int kMaxArgumentDepth = 64;

const char* role_name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
    case ChatRole::kTool:
      return "tool";
  }
  return "user";
}

OrderedJson parse_within_depth(const std::string& text) {
  int depth = 0;
  const OrderedJson::parser_callback_t watch = [&](int, OrderedJson::parse_event_t event,
                                                   OrderedJson&) {
    using Event = OrderedJson::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) ++depth;
    if (event == Event::object_end || event == Event::array_end) --depth;
    return depth <= kMaxArgumentDepth;
  };
  return OrderedJson::parse(text, watch, false);
}

OrderedJson template_call(const ToolCall& call, bool arguments_as_text) {
  OrderedJson json;
  if (!call.id.empty()) json["id"] = call.id;
  json["type"] = "function";
  OrderedJson arguments = arguments_object(call.arguments);
  if (arguments_as_text) {
    arguments = arguments.empty() ? OrderedJson("{}") : OrderedJson(call.arguments);
  }
  json["function"] = {{"name", call.name}, {"arguments", std::move(arguments)}};
  return json;
}

}  // namespace

OrderedJson arguments_object(const std::string& arguments) {
  if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return OrderedJson::object();
  OrderedJson parsed = parse_within_depth(arguments);
  if (parsed.is_object()) return parsed;
  return {{"arguments", arguments}};
}

Conversation late_systems_as_users(Conversation conversation) {
  for (std::size_t i = 1; i < conversation.messages.size(); ++i) {
    ChatMessage& message = conversation.messages[i];
    if (message.role != ChatRole::kSystem) continue;
    message.role = ChatRole::kUser;
    message.content = "<system-reminder>\n" + message.content + "\n</system-reminder>";
  }
  return conversation;
}

Conversation with_a_user(Conversation conversation) {
  for (const ChatMessage& message : conversation.messages) {
    if (message.role == ChatRole::kUser) return conversation;
  }
  // Behind the system message, where a conversation's first user message stands.
  auto at = conversation.messages.begin();
  if (at != conversation.messages.end() && at->role == ChatRole::kSystem) ++at;
  conversation.messages.insert(at, ChatMessage{});
  return conversation;
}

Conversation with_kimi_ids(Conversation conversation) {
  std::map<std::string, std::string> renamed;
  std::vector<std::string> awaiting;  // calls of the last assistant message, in their order
  std::size_t count = 0;
  std::size_t answered = 0;
  for (ChatMessage& message : conversation.messages) {
    if (!message.calls.empty()) {
      awaiting.clear();
      answered = 0;
    }
    for (ToolCall& call : message.calls) {
      std::string id = "functions." + call.name + ":" + std::to_string(count++);
      if (!call.id.empty()) renamed[call.id] = id;
      awaiting.push_back(id);
      call.id = std::move(id);
    }
    if (message.role != ChatRole::kTool) continue;
    const auto found = renamed.find(message.tool_call_id);
    if (found != renamed.end()) {
      message.tool_call_id = found->second;
    } else if (answered < awaiting.size()) {
      message.tool_call_id = awaiting[answered];
    }
    ++answered;
  }
  return conversation;
}

Conversation with_one_call_each(Conversation conversation) {
  std::vector<ChatMessage> messages;
  auto& given = conversation.messages;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].calls.size() < 2) {
      messages.push_back(std::move(given[i]));
      continue;
    }
    std::vector<ChatMessage> results;
    std::size_t next = i + 1;
    for (; next < given.size() && given[next].role == ChatRole::kTool; ++next) {
      results.push_back(std::move(given[next]));
    }
    std::vector<bool> used(results.size(), false);
    ChatMessage part = given[i];
    for (std::size_t k = 0; k < given[i].calls.size(); ++k) {
      part.calls = {given[i].calls[k]};
      messages.push_back(part);
      part.content.clear();
      part.reasoning.clear();
      for (std::size_t r = 0; r < results.size(); ++r) {
        const bool by_id = !part.calls[0].id.empty() && results[r].tool_call_id == part.calls[0].id;
        if (used[r] || !(by_id || (results[r].tool_call_id.empty() && r == k))) continue;
        used[r] = true;
        messages.push_back(results[r]);
      }
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (!used[r]) messages.push_back(std::move(results[r]));
    }
    i = next - 1;
  }
  conversation.messages = std::move(messages);
  return conversation;
}

Conversation apply_history_rules(Conversation conversation, const HistoryRules& rules) {
  if (rules.late_system_to_user) conversation = late_systems_as_users(std::move(conversation));
  if (rules.needs_user) conversation = with_a_user(std::move(conversation));
  if (rules.kimi_ids) conversation = with_kimi_ids(std::move(conversation));
  if (rules.one_call_each) conversation = with_one_call_each(std::move(conversation));
  return conversation;
}

OrderedJson template_messages(const Conversation& conversation, bool arguments_as_text) {
  OrderedJson messages = OrderedJson::array();
  for (const ChatMessage& message : conversation.messages) {
    OrderedJson json = {{"role", role_name(message.role)}, {"content", message.content}};
    if (!message.reasoning.empty()) {
      json["reasoning_content"] = message.reasoning;
      json["thinking"] = message.reasoning;  // where gpt-oss and others look
    }
    if (!message.calls.empty()) {
      OrderedJson calls = OrderedJson::array();
      for (const ToolCall& call : message.calls) {
        calls.push_back(template_call(call, arguments_as_text));
      }
      json["tool_calls"] = std::move(calls);
    }
    if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
    if (!message.name.empty()) json["name"] = message.name;
    messages.push_back(std::move(json));
  }
  return messages;
}

OrderedJson template_tools(const Conversation& conversation) {
  if (conversation.tools.empty()) return nullptr;
  OrderedJson tools = OrderedJson::array();
  for (const ToolSpec& tool : conversation.tools) {
    if (!tool.wire.is_null()) {
      tools.push_back(tool.wire);
      continue;
    }
    OrderedJson function = {{"name", tool.name}, {"description", tool.description}};
    if (!tool.parameters.is_null()) function["parameters"] = tool.parameters;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

}  // namespace moepack
