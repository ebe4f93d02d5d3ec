// The input items of OpenAI's Responses API as a conversation.
#pragma once

#include <string>
#include <string_view>

#include "runtime/chat/conversation.h"
#include "runtime/serve/request_fields.h"

namespace moepack {

// Fed in the order of the prompt. Conversation and problem outlive it.
class ResponsesInput {
 public:
  ResponsesInput(Conversation& conversation, RequestProblem& problem)
      : conversation_(conversation), problem_(problem) {}

  void add_instructions(std::string_view text);
  void add_user(std::string text);
  void add_item(const OrderedJson& item, const std::string& path);

 private:
  void add_message(const RequestFields& fields);
  void add_call(const RequestFields& fields, bool is_custom);
  void add_call_output(const RequestFields& fields);
  void add_reasoning(const RequestFields& fields);
  ChatMessage& assistant();

  Conversation& conversation_;
  RequestProblem& problem_;
};

}  // namespace moepack
