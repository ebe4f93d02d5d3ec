// Requests as the service gets them, as JSON, for tests to look at.
#pragma once

#include <string>
#include <variant>

#include "runtime/service/answer_request.h"

namespace moepack::test {

OrderedJson request_json(const ChatRequest& request);
OrderedJson request_json(const CompletionRequest& request);
std::string request_text(const std::variant<ChatRequest, CompletionRequest>& request);
// "<role>content\n" of every message.
std::string conversation_text(const Conversation& conversation);

}  // namespace moepack::test
