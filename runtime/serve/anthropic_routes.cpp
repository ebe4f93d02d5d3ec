#include "runtime/serve/anthropic_routes.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/anthropic_answer.h"
#include "runtime/serve/anthropic_errors.h"
#include "runtime/serve/anthropic_request.h"

namespace moepack {
namespace {

std::variant<AnswerJob, ApiError> answer_messages(const RouteCall& call) {
  auto parsed = read_messages_request(call.json, MessagesPurpose::kAnswer, call.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<MessagesRequest>(parsed);
  MessageIdentity identity;
  identity.id = "msg_" + call.request_id;
  identity.model = request.model.empty() ? call.model.id : request.model;
  identity.request_id = call.request_id;
  identity.thinks = call.model.can_think && request.chat.thinks.value_or(true);
  AnswerJob job;
  job.request = std::move(request.chat);
  if (request.streams) {
    job.writer = make_messages_stream(std::move(identity));
  } else {
    job.writer = make_messages_whole(std::move(identity));
  }
  return job;
}

// Renders and tokenizes; the model is not asked and nobody is waited for.
std::variant<HttpReply, ApiError> count_messages(const RouteCall& call) {
  auto parsed = read_messages_request(call.json, MessagesPurpose::kCount);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const auto& request = std::get<MessagesRequest>(parsed);
  auto rendered = call.service.render(request.chat);
  if (auto* refusal = std::get_if<Refusal>(&rendered)) return api_error(*refusal);
  OrderedJson body = OrderedJson::object();
  body["input_tokens"] = std::get<RenderedPrompt>(rendered).ids.size();
  return json_reply(body);
}

}  // namespace

void add_anthropic_routes(RouteTable& table) {
  table.add({.method = "POST",
             .path = "/messages",
             .handler = AnswerHandler(answer_messages),
             .errors = anthropic_error_body});
  table.add({.method = "POST",
             .path = "/messages/count_tokens",
             .handler = PlainHandler(count_messages),
             .errors = anthropic_error_body});
}

}  // namespace moepack
