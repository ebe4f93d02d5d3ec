#include "runtime/serve/late_system.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace moepack {

bool joins_tool_result(const Conversation& conversation, std::string_view text) {
  return !conversation.messages.empty() && conversation.messages.back().role == ChatRole::kTool &&
         text.starts_with(kReminderBegin);
}

void add_late_system_text(Conversation& conversation, std::string_view text) {
  if (text.empty()) return;
  std::string reminder(text);
  if (!text.starts_with(kReminderBegin)) {
    reminder = std::string(kReminderBegin).append("\n").append(text).append("\n");
    reminder.append(kReminderEnd);
  }
  std::vector<ChatMessage>& messages = conversation.messages;
  const bool joins = joins_tool_result(conversation, reminder) ||
                     (!messages.empty() && messages.back().role == ChatRole::kUser);
  if (!joins) {
    messages.emplace_back();
    messages.back().role = ChatRole::kUser;
  }
  std::string& content = messages.back().content;
  if (!content.empty()) content += "\n\n";
  content += reminder;
}

}  // namespace moepack
