#include <utility>

#include "runtime/serve/chat_request_json.h"
#include "runtime/serve/completion_request_json.h"
#include "runtime/serve/openai_chat_stream.h"
#include "runtime/serve/openai_chat_whole.h"
#include "runtime/serve/openai_completion.h"
#include "runtime/serve/server_state.h"

namespace moepack {
namespace {

OpenaiAnswer openai_answer(const RouteCall& call, const std::string& prefix,
                           const std::string& model, const AnswerForm& form,
                           const AnswerOptions& options) {
  return {.id = prefix + call.request_id,
          .created = call.unix_seconds,
          .model = model.empty() ? call.model.id : model,
          .choices = options.choices,
          .choices_of_one = options.choices,
          .has_logprobs = options.top_logprobs.has_value(),
          .form = form};
}

std::variant<AnswerJob, ApiError> answer_chat(const RouteCall& call) {
  auto parsed = parse_chat_request(call.json, call.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& chat = std::get<ParsedChatRequest>(parsed);
  OpenaiAnswer answer =
      openai_answer(call, "chatcmpl-", chat.model, chat.form, chat.request.options);
  AnswerJob job;
  job.request = std::move(chat.request);
  if (chat.form.streams) {
    job.writer = make_openai_chat_stream(std::move(answer));
  } else {
    job.writer = make_openai_chat_whole(std::move(answer));
  }
  return job;
}

std::variant<AnswerJob, ApiError> answer_completion(const RouteCall& call) {
  auto parsed = parse_completion_request(call.json, call.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& completion = std::get<ParsedCompletionRequest>(parsed);
  OpenaiAnswer answer = openai_answer(call, "cmpl-", completion.model, completion.form,
                                      completion.requests.front().options);
  answer.choices *= static_cast<std::uint32_t>(completion.requests.size());
  AnswerJob job;
  job.request = std::move(completion.requests);
  if (completion.form.streams) {
    job.writer = make_openai_completion_stream(std::move(answer));
  } else {
    job.writer = make_openai_completion_whole(std::move(answer));
  }
  return job;
}

}  // namespace

void add_openai_routes(RouteTable& table) {
  table.add({.method = "POST", .path = "/chat/completions", .handler = AnswerHandler(answer_chat)});
  table.add(
      {.method = "POST", .path = "/completions", .handler = AnswerHandler(answer_completion)});
}

}  // namespace moepack
