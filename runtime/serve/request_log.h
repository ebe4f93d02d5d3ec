// What the one who runs the server sees of each request: a line, and nothing of what was said.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/http/response_writer.h"
#include "runtime/service/answer_events.h"

namespace moepack {

struct RequestRecord {
  std::string method;  // empty, as the path: what came was no request
  std::string path;    // without the query
  int status = 0;
  double seconds = 0;  // from the whole request to the end of its answer
  // With an answer of the model, of all its choices.
  std::optional<AnswerEndReason> reason;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
};

// "POST /v1/chat/completions 200 1532 ms, prompt 412 (380 kept), answer 37, stop". Characters of
// the path that are not printable are escaped, and long paths cut.
std::string request_line(const RequestRecord& record);

// Any thread.
using RequestSink = std::function<void(const RequestRecord& record)>;

// `writer`, with the record given to `sink` once the answer has ended. Status and seconds are
// filled in here; the rest of `record` is the caller's until then.
std::shared_ptr<ResponseWriter> with_record(std::shared_ptr<ResponseWriter> writer,
                                            std::shared_ptr<RequestRecord> record,
                                            RequestSink sink);

}  // namespace moepack
