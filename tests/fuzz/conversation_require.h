// What holds of every request that a protocol has taken, and of every refusal.
#pragma once

#include <algorithm>
#include <variant>

#include "runtime/serve/api_error.h"
#include "runtime/service/answer_request.h"
#include "tests/fuzz/require.h"

namespace moepack::test {

inline void require_refusal(const ApiError& error) {
  require(error.kind == ApiErrorKind::kInvalidRequest);
  require(!error.parameter.empty());
  require(error.message.find(error.parameter.substr(0, error.parameter.find('.'))) !=
          std::string::npos);
}

inline void require_conversation(const Conversation& conversation) {
  require(!conversation.messages.empty());
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    require(message.role != ChatRole::kSystem || i == 0);  // templates refuse later ones
    require(message.calls.empty() || message.role == ChatRole::kAssistant);
    for (const ToolCall& call : message.calls) require(!call.name.empty());
  }
  require(!conversation.continues_last ||
          (conversation.messages.back().role == ChatRole::kAssistant &&
           !conversation.messages.back().content.empty()));
  for (const ToolSpec& tool : conversation.tools) {
    require(!tool.name.empty() && tool.wire["function"]["parameters"].is_object());
  }
}

inline void require_request(const ChatRequest& chat) {
  require_conversation(chat.conversation);
  require(chat.options.choices == 1);
  for (const std::string& stop : chat.options.stop) require(!stop.empty());
  require(std::is_sorted(chat.cache_hints.begin(), chat.cache_hints.end()));
  for (const std::size_t hint : chat.cache_hints) require(hint < chat.conversation.messages.size());
  for (const std::string& name : chat.tool_choice.allowed) {
    const auto& tools = chat.conversation.tools;
    require(std::any_of(tools.begin(), tools.end(),
                        [&](const ToolSpec& tool) { return tool.name == name; }));
  }
}

}  // namespace moepack::test
