// What OpenAI's answers of every kind have in common. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/serve/answer_writer.h"
#include "runtime/serve/chat_request_json.h"
#include "runtime/service/answer_events.h"

namespace moepack {

// What an answer says about itself and how it is written.
struct OpenaiAnswer {
  std::string id;            // "chatcmpl-…"
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::uint32_t choices = 1;         // of all requests together
  std::uint32_t choices_of_one = 1;  // of each request: "n"
  bool has_logprobs = false;
  AnswerForm form;
};

// {"id","object","created","model","system_fingerprint"}; "choices" is the caller's.
OrderedJson openai_head(const OpenaiAnswer& answer, const char* object);

// "stop", "length" or "tool_calls".
const char* openai_finish_reason(AnswerEndReason reason);
// {"error":{"message","type","code":500}}: the form of errors inside of streams.
std::string openai_stream_error(const ApiError& error);

OrderedJson openai_token(const TokenLogprob& token);
// Elements of "content" of a chat's logprobs.
void append_openai_logprobs(OrderedJson& list, const std::vector<TokenLogprobs>& tokens);

// llama.cpp's "timings".
OrderedJson openai_timings(const AnswerUsage& usage, const AnswerTimings& timings);
OrderedJson openai_progress(const PromptProgress& progress);

// The usage of all choices: the prompt of a request counts once.
class OpenaiUsage {
 public:
  explicit OpenaiUsage(std::uint32_t choices_of_one) : choices_of_one_(choices_of_one) {}
  void add(std::uint32_t choice, const AnswerUsage& usage);
  OrderedJson json() const;

 private:
  std::uint32_t choices_of_one_;
  AnswerUsage sum_;
};

}  // namespace moepack
