#include "runtime/serve/responses_routes.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/responses_answer.h"
#include "runtime/serve/responses_request.h"

namespace moepack {
namespace {

std::variant<AnswerJob, ApiError> answer_responses(const RouteCall& call) {
  auto parsed = read_responses_request(call.json, ResponsesPurpose::kAnswer, call.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<ResponsesRequest>(parsed);
  ResponseIdentity identity;
  identity.id = "resp_" + call.request_id;
  identity.model = request.model.empty() ? call.model.id : request.model;
  identity.unix_seconds = call.unix_seconds;
  identity.echo = std::move(request.echo);
  AnswerJob job;
  job.request = std::move(request.chat);
  if (request.streams) {
    job.writer = make_responses_stream(std::move(identity));
  } else {
    job.writer = make_responses_whole(std::move(identity));
  }
  return job;
}

std::variant<HttpReply, ApiError> count_responses(const RouteCall& call) {
  auto parsed = read_responses_request(call.json, ResponsesPurpose::kCount);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const auto& request = std::get<ResponsesRequest>(parsed);
  auto rendered = call.service.render(request.chat);
  if (auto* refusal = std::get_if<Refusal>(&rendered)) return api_error(*refusal);
  OrderedJson body = OrderedJson::object();
  body["object"] = "response.input_tokens";
  body["input_tokens"] = std::get<RenderedPrompt>(rendered).ids.size();
  return json_reply(body);
}

}  // namespace

void add_responses_routes(RouteTable& table) {
  table.add({.method = "POST", .path = "/responses", .handler = AnswerHandler(answer_responses)});
  table.add({.method = "POST",
             .path = "/responses/input_tokens",
             .handler = PlainHandler(count_responses)});
}

}  // namespace moepack
