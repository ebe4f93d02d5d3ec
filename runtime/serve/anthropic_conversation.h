// The messages of Anthropic's Messages API as a conversation.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/serve/body_fields.h"

namespace moepack {

// Fed in the order of the prompt: system, then messages. The conversation, the hints and the
// fault outlive it.
class MessagesConversation {
 public:
  MessagesConversation(Conversation& conversation, std::vector<std::size_t>& cache_hints,
                       RequestFault& fault)
      : conversation_(conversation), cache_hints_(cache_hints), fault_(fault) {}

  // `system`: a text or blocks of text.
  void add_system(const OrderedJson& system);
  void add_message(const OrderedJson& message, const std::string& path);

 private:
  void add_user(const OrderedJson& content, const std::string& path);
  void add_assistant(const OrderedJson& content, const std::string& path);
  void add_late_system(const OrderedJson& content, const std::string& path);
  void add_tool_result(const OrderedJson& block, const std::string& path);
  void add_tool_use(ChatMessage& message, const OrderedJson& block, const std::string& path);
  void add_user_text(std::string_view text, bool starts_turn);
  void append_system(std::string_view text);
  ChatMessage& open_turn(ChatRole role);
  void hint(const OrderedJson& block);
  void refuse(std::string message, std::string path);

  Conversation& conversation_;
  std::vector<std::size_t>& cache_hints_;
  RequestFault& fault_;
};

}  // namespace moepack
