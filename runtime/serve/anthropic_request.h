// A request of Anthropic's Messages API as a request to the service.
#pragma once

#include <string>
#include <variant>

#include "runtime/serve/api_error.h"
#include "runtime/service/answer_request.h"

namespace moepack {

struct MessagesRequest {
  ChatRequest chat;
  std::string model;  // as it was asked for; empty: not said
  bool streams = false;
};

enum class MessagesPurpose : std::uint8_t {
  kAnswer,
  kCount,  // tokens are counted only: no max_tokens, and any last message will do
};

// `body` is an object of limited depth; `defaults` hold where it says nothing. Pure,
// and never throws on data. What it does beside plain conversion:
// - a billing line ("x-anthropic-billing-header: …"), which changes with each request, is dropped;
// - a system message within the conversation becomes text of the user in <system-reminder>, in its
//   place. Such reminders right behind the result of a tool are added to that result: templates
//   take a user's message for a new question and would drop the thoughts before it;
// - results of tools become messages of their own, before the text of the message they came in;
// - turns of one role that follow each other become one;
// - tools that run at Anthropic (a type and no schema), redacted thoughts and their like are
// dropped;
// - images become a line of text that says so;
// - without "thinking" the model does not think: clients read content[0].text.
std::variant<MessagesRequest, ApiError> read_messages_request(const OrderedJson& body,
                                                              MessagesPurpose purpose,
                                                              const AnswerOptions& defaults = {});

}  // namespace moepack
