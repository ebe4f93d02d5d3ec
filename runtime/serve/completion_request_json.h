// POST /v1/completions: JSON in, what is asked for out. Unknown fields are ignored, null is absent.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "runtime/serve/api_error.h"
#include "runtime/serve/chat_request_json.h"
#include "runtime/service/answer_request.h"

namespace moepack {

struct ParsedCompletionRequest {
  std::vector<CompletionRequest> requests;  // one for each prompt; all with the same options
  AnswerForm form;
  std::string model;
};

// A pure function. `defaults`: what holds for fields that are absent. `json` is an object. "prompt"
// is a text, ids, or an array of either. max_tokens 0 stays 0 here: with echo it scores the prompt.
std::variant<ParsedCompletionRequest, ApiError> parse_completion_request(
    const OrderedJson& json, const AnswerOptions& defaults);

}  // namespace moepack
