// A request of OpenAI's Responses API as a request to the service.
#pragma once

#include <string>
#include <variant>

#include "runtime/serve/api_error.h"
#include "runtime/service/answer_request.h"

namespace moepack {

struct ResponsesRequest {
  ChatRequest chat;
  std::string model;  // as it was asked for; empty: not said
  bool streams = false;
  // What the answer says of its request: instructions, tools, temperature and so on.
  OrderedJson echo = OrderedJson::object();
};

enum class ResponsesPurpose : std::uint8_t { kAnswer, kCount };

// `body` is an object of limited depth; `defaults` hold where it says nothing. Pure,
// and never throws on data. Nothing is kept between requests: what refers to an earlier answer is
// refused. Tools that are no functions are skipped. Neighbouring items of the assistant (thoughts,
// texts, calls) become one message. System and developer messages at the start join the
// instructions, later ones become reminders (late_system.h).
std::variant<ResponsesRequest, ApiError> read_responses_request(const OrderedJson& body,
                                                                ResponsesPurpose purpose,
                                                                const AnswerOptions& defaults = {});

}  // namespace moepack
