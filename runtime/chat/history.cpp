#include "runtime/chat/history.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/base/json.h"

namespace moepack {
namespace {

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

// JSON in which keys stand twice; looking for the first costs a step for each key before it.
std::optional<OrderedJson> parse_with_repeated_keys(const std::string& text) {
  constexpr std::size_t kMostBytes = 16384;
  if (text.size() > kMostBytes) return std::nullopt;
  bool is_too_deep = false;
  const auto keeps = [&is_too_deep](int depth, OrderedJson::parse_event_t, OrderedJson&) {
    is_too_deep = is_too_deep || depth > kMaxJsonDepth;
    return !is_too_deep;
  };
  OrderedJson parsed = OrderedJson::parse(text, keeps, false);
  if (is_too_deep || parsed.is_discarded()) return std::nullopt;
  return std::make_optional<OrderedJson>(std::move(parsed));
}

}  // namespace

std::optional<OrderedJson> parse_arguments(const std::string& arguments) {
  if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return OrderedJson::object();
  Result<OrderedJson> parsed = parse_ordered_json(arguments, Where{.file = "arguments"});
  if (!parsed.is_ok()) return parse_with_repeated_keys(arguments);
  return std::make_optional<OrderedJson>(std::move(parsed).value());
}

OrderedJson arguments_object(const std::string& arguments) {
  std::optional<OrderedJson> parsed = parse_arguments(arguments);
  if (parsed.has_value() && parsed->is_object()) return *std::move(parsed);
  return {{"arguments", arguments}};
}

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const ChatRole role :
       {ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant, ChatRole::kTool}) {
    names.emplace_back(role_name(role));
  }
  return names;
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

namespace {

// Brings the results among `messages`, which stand behind `calls`, into the order of these.
void order_results(const std::vector<ToolCall>& calls, std::span<ChatMessage> messages) {
  std::unordered_map<std::string_view, std::size_t> place_of;
  for (const ToolCall& call : calls) {
    if (!call.id.empty()) place_of.emplace(call.id, place_of.size());
  }
  std::vector<std::pair<std::size_t, ChatMessage*>> results;
  for (ChatMessage& message : messages) {
    const auto place = place_of.find(message.tool_call_id);
    const bool is_result = message.role == ChatRole::kTool && place != place_of.end();
    if (is_result) results.emplace_back(place->second, &message);
  }
  const auto is_before = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (std::is_sorted(results.begin(), results.end(), is_before)) return;
  std::vector<std::pair<std::size_t, ChatMessage>> sorted;
  for (const auto& [place, message] : results) sorted.emplace_back(place, std::move(*message));
  std::stable_sort(sorted.begin(), sorted.end(), is_before);
  for (std::size_t i = 0; i < results.size(); ++i) {
    *results[i].second = std::move(sorted[i].second);
  }
}

}  // namespace

Conversation with_results_in_order(Conversation conversation) {
  std::vector<ChatMessage>& messages = conversation.messages;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].calls.size() < 2) continue;
    std::size_t end = i + 1;
    const auto ends_turn = [](ChatRole role) {
      return role == ChatRole::kAssistant || role == ChatRole::kUser;
    };
    while (end < messages.size() && !ends_turn(messages[end].role)) ++end;
    order_results(messages[i].calls, std::span(messages).subspan(i + 1, end - i - 1));
  }
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

namespace {

// The results that stand behind a message with calls, each to be taken once.
class CallResults {
 public:
  void add(ChatMessage result) {
    by_id_[result.tool_call_id].push_back(results_.size());
    results_.push_back(std::move(result));
    is_used_.push_back(false);
  }
  // Appends those of the call at `place`: with its id, or without one at its place.
  void take(const ToolCall& call, std::size_t place, std::vector<ChatMessage>& messages) {
    if (!call.id.empty()) {
      for (const std::size_t result : std::exchange(by_id_[call.id], {})) move(result, messages);
    }
    if (place < results_.size() && results_[place].tool_call_id.empty()) move(place, messages);
  }
  void take_rest(std::vector<ChatMessage>& messages) {
    for (std::size_t i = 0; i < results_.size(); ++i) move(i, messages);
  }

 private:
  void move(std::size_t result, std::vector<ChatMessage>& messages) {
    if (is_used_[result]) return;
    is_used_[result] = true;
    messages.push_back(std::move(results_[result]));
  }

  std::vector<ChatMessage> results_;
  std::vector<bool> is_used_;
  std::unordered_map<std::string, std::vector<std::size_t>> by_id_;
};

}  // namespace

Conversation with_one_call_each(Conversation conversation) {
  std::vector<ChatMessage> messages;
  auto& given = conversation.messages;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].calls.size() < 2) {
      messages.push_back(std::move(given[i]));
      continue;
    }
    CallResults results;
    std::size_t next = i + 1;
    for (; next < given.size() && given[next].role == ChatRole::kTool; ++next) {
      results.add(std::move(given[next]));
    }
    std::vector<ToolCall> calls = std::exchange(given[i].calls, {});
    for (std::size_t k = 0; k < calls.size(); ++k) {
      // What else the message says stands before its first call.
      ChatMessage part = k == 0 ? std::move(given[i]) : ChatMessage{.role = ChatRole::kAssistant};
      part.calls = {std::move(calls[k])};
      const ToolCall call = part.calls[0];
      messages.push_back(std::move(part));
      results.take(call, k, messages);
    }
    results.take_rest(messages);
    i = next - 1;
  }
  conversation.messages = std::move(messages);
  return conversation;
}

Conversation apply_history_rules(Conversation conversation, const HistoryRules& rules) {
  conversation = with_results_in_order(std::move(conversation));
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
