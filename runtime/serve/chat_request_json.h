// POST /v1/chat/completions: JSON in, what is asked for out. Unknown fields are ignored, null is
// absent.
#pragma once

#include <string>
#include <variant>

#include "runtime/serve/api_error.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// How the answer is to be written.
struct AnswerForm {
  bool streams = false;
  bool has_usage = false;          // of streams: stream_options.include_usage
  bool has_progress = false;       // of streams: return_progress
  bool has_timings = false;        // of streams: timings in every chunk
  bool shows_reasoning = true;     // else thoughts are left out
  bool inlines_reasoning = false;  // reasoning_format "none": thoughts are content
};

struct ParsedChatRequest {
  ChatRequest request;
  AnswerForm form;
  std::string model;  // as the client says it; may be empty
};

// A pure function. `defaults`: what holds for fields that are absent. `json` is an object.
std::variant<ParsedChatRequest, ApiError> parse_chat_request(const OrderedJson& json,
                                                             const AnswerOptions& defaults);

}  // namespace moepack
