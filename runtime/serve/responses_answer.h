// Answers in the form of OpenAI's Responses API.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/serve/answer_writer.h"

namespace moepack {

struct ResponseIdentity {
  std::string id;     // "resp_…"
  std::string model;  // as clients are told
  std::int64_t unix_seconds = 0;
  OrderedJson echo = OrderedJson::object();  // ResponsesRequest::echo
};

// Events from response.created to response.completed, response.incomplete (a limit) or
// response.failed, each with its name and sequence_number. Every block of the answer is an item;
// items begin one behind the other and their indices have no gap. keep_alive() repeats
// response.in_progress: some clients count events only. A call that is cut off by a limit has
// begun but is never done, and is not in the last event's output.
std::unique_ptr<StreamWriter> make_responses_stream(ResponseIdentity identity);

// The same as one object.
std::unique_ptr<WholeWriter> make_responses_whole(ResponseIdentity identity);

}  // namespace moepack
