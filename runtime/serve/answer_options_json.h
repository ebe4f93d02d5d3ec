// How an answer is to be drawn, as OpenAI's clients, llama.cpp's and vLLM's say it.
#pragma once

#include "runtime/serve/body_fields.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// Samplers, stop, n, logit_bias, seed and the limit of tokens, over `defaults`. Logprobs are not
// read: chat and completions write them differently. A limit of 0 or -1 is none.
AnswerOptions read_answer_options(const BodyFields& request, const AnswerOptions& defaults);

// "response_format", and llama.cpp's and vLLM's ways to give a schema. Grammars of other kinds are
// faults: an answer that ignores them would be wrong.
ResponseFormat read_response_format(const BodyFields& request);

}  // namespace moepack
