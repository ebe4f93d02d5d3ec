// The input items of OpenAI's Responses API as a conversation.
#pragma once

#include <string>
#include <string_view>

#include "runtime/chat/conversation.h"
#include "runtime/serve/body_fields.h"

namespace moepack {

// Fed in the order of the prompt. Conversation and fault outlive it.
class ResponsesInput {
 public:
  ResponsesInput(Conversation& conversation, RequestFault& fault)
      : conversation_(conversation), fault_(fault) {}

  void add_instructions(std::string_view text);
  void add_user(std::string text);
  void add_item(const OrderedJson& item, const std::string& path);

 private:
  void add_message(const BodyFields& fields);
  void add_call(const BodyFields& fields, bool is_custom);
  void add_call_output(const BodyFields& fields);
  void add_reasoning(const BodyFields& fields);
  ChatMessage& assistant();

  Conversation& conversation_;
  RequestFault& fault_;
};

}  // namespace moepack
