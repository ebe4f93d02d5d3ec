#include "convert/cli/chat_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "convert/cli/output.h"
#include "convert/cli/token_input.h"
#include "formats/base/json.h"

namespace moepack::cli {
namespace {

constexpr const char* kChatFormat = "moepack-chat";
constexpr int kChatVersion = 1;
constexpr const char* kChatRemedy = "load a file that /save wrote";
constexpr std::array<const char*, 4> kRoleNames = {"system", "user", "assistant", "tool"};

OrderedJson message_json(const ChatMessage& message) {
  OrderedJson json{{"role", kRoleNames[static_cast<std::size_t>(message.role)]},
                   {"content", message.content}};
  const auto add = [&json](const char* key, const std::string& text) {
    if (!text.empty()) json[key] = text;
  };
  add("reasoning", message.reasoning);
  for (const ToolCall& call : message.calls) {
    json["tool_calls"].push_back(
        {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  add("tool_call_id", message.tool_call_id);
  add("name", message.name);
  return json;
}

// Texts of one object; the first that is missing or no text is remembered.
class TextMembers {
 public:
  TextMembers(const nlohmann::json& json, bool* is_good) : json_(json), is_good_(is_good) {}
  std::string get(const char* key, bool is_required = false) {
    const auto found = json_.is_object() ? json_.find(key) : json_.end();
    if (!json_.is_object() || (found == json_.end() ? is_required : !found->is_string())) {
      *is_good_ = false;
      return {};
    }
    return found == json_.end() ? std::string() : found->get<std::string>();
  }

 private:
  const nlohmann::json& json_;
  bool* is_good_;
};

bool read_message_json(const nlohmann::json& json, ChatMessage& message) {
  bool is_good = true;
  TextMembers texts(json, &is_good);
  const std::string role = texts.get("role", true);
  const auto* const found = std::find(kRoleNames.begin(), kRoleNames.end(), role);
  if (!is_good || found == kRoleNames.end()) return false;
  message.role = static_cast<ChatRole>(found - kRoleNames.begin());
  message.content = texts.get("content", true);
  message.reasoning = texts.get("reasoning");
  message.tool_call_id = texts.get("tool_call_id");
  message.name = texts.get("name");
  if (!json.contains("tool_calls")) return is_good;
  if (!json["tool_calls"].is_array()) return false;
  for (const nlohmann::json& one : json["tool_calls"]) {
    TextMembers parts(one, &is_good);
    ToolCall call{parts.get("id"), parts.get("name", true), parts.get("arguments", true)};
    message.calls.push_back(std::move(call));
  }
  return is_good;
}

}  // namespace

Status save_chat(const std::filesystem::path& file, const std::vector<ChatMessage>& messages) {
  OrderedJson json{{"format", kChatFormat}, {"version", kChatVersion}, {"messages", nullptr}};
  json["messages"] = OrderedJson::array();
  for (const ChatMessage& message : messages) json["messages"].push_back(message_json(message));
  return write_output(file, json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

Result<std::vector<ChatMessage>> load_chat(const std::filesystem::path& file) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text(file));
  return parse_chat(text, file.string());
}

Result<std::vector<ChatMessage>> parse_chat(std::string_view text, const std::string& name) {
  const Where where{.file = name};
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, where));
  const bool is_chat = json.is_object() && json.contains("format") &&
                       json["format"] == kChatFormat && json.contains("messages") &&
                       json["messages"].is_array();
  if (!is_chat) return corrupt(where, "is no saved conversation", kChatRemedy);
  if (!json.contains("version") || json["version"] != kChatVersion) {
    return unsupported(where, "is a conversation of another version", kChatRemedy);
  }
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& one : json["messages"]) {
    ChatMessage message;
    if (!read_message_json(one, message)) {
      return corrupt(where, "message " + std::to_string(messages.size()) + " is not one",
                     kChatRemedy);
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace moepack::cli
