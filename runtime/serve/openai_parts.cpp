#include "runtime/serve/openai_parts.h"

#include <cmath>
#include <utility>

#include "formats/base/elapsed.h"
#include "runtime/serve/server_version.h"

namespace moepack {

OrderedJson openai_head(const OpenaiAnswer& answer, const char* object) {
  OrderedJson json = OrderedJson::object();
  json["id"] = answer.id;
  json["object"] = object;
  json["created"] = answer.created;
  json["model"] = answer.model;
  json["system_fingerprint"] = std::string("moepack-") + server_version();
  return json;
}

const char* openai_finish_reason(AnswerEndReason reason) {
  switch (reason) {
    case AnswerEndReason::kToolCalls:
      return "tool_calls";
    case AnswerEndReason::kLength:
    case AnswerEndReason::kContext:
      return "length";
    default:
      return "stop";
  }
}

std::string openai_stream_error(const ApiError& error) {
  OrderedJson json = OrderedJson::parse(openai_error_body(error, {}));
  json["error"]["code"] = http_status(error.kind);
  return sse_event(dump_json(json));
}

OrderedJson openai_token(const TokenLogprob& token) {
  OrderedJson json = OrderedJson::object();
  json["id"] = token.id;
  json["token"] = token.bytes;
  json["logprob"] = std::isfinite(token.logprob) ? token.logprob : kNoLogprob;
  OrderedJson bytes = OrderedJson::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  json["bytes"] = std::move(bytes);
  return json;
}

void append_openai_logprobs(OrderedJson& list, const std::vector<TokenLogprobs>& tokens) {
  for (const TokenLogprobs& token : tokens) {
    OrderedJson json = openai_token(token.token);
    OrderedJson top = OrderedJson::array();
    for (const TokenLogprob& other : token.top) top.push_back(openai_token(other));
    json["top_logprobs"] = std::move(top);
    list.push_back(std::move(json));
  }
}

OrderedJson openai_timings(const AnswerUsage& usage, const AnswerTimings& timings) {
  OrderedJson json = OrderedJson::object();
  json["cache_n"] = usage.cached_tokens;
  json["prompt_n"] = timings.prompt_tokens;
  json["prompt_ms"] = timings.prompt_seconds * 1000;
  json["prompt_per_second"] = per_second(timings.prompt_tokens, timings.prompt_seconds);
  json["predicted_n"] = timings.decode_tokens;
  json["predicted_ms"] = timings.decode_seconds * 1000;
  json["predicted_per_second"] = per_second(timings.decode_tokens, timings.decode_seconds);
  return json;
}

OrderedJson openai_progress(const PromptProgress& progress) {
  OrderedJson json = OrderedJson::object();
  json["total"] = progress.total;
  json["cache"] = progress.cached;
  json["processed"] = progress.done;
  json["time_ms"] = progress.seconds * 1000;
  return json;
}

void OpenaiUsage::add(std::uint32_t choice, const AnswerUsage& usage) {
  sum_.completion_tokens += usage.completion_tokens;
  sum_.reasoning_tokens += usage.reasoning_tokens;
  if (choice % choices_of_one_ != 0) return;
  sum_.prompt_tokens += usage.prompt_tokens;
  sum_.cached_tokens += usage.cached_tokens;
}

OrderedJson OpenaiUsage::json() const {
  OrderedJson json = OrderedJson::object();
  json["prompt_tokens"] = sum_.prompt_tokens;
  json["completion_tokens"] = sum_.completion_tokens;
  json["total_tokens"] = sum_.prompt_tokens + sum_.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = sum_.cached_tokens;
  json["completion_tokens_details"]["reasoning_tokens"] = sum_.reasoning_tokens;
  return json;
}

}  // namespace moepack
