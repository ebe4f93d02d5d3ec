// An AnswerService that plays a script: what the server makes of events is tested without a model.
#pragma once

#include <memory>
#include <string>

#include "runtime/chat/conversation.h"
#include "runtime/service/answer_service.h"

namespace moepack::test {

// {"model": {"id","context","vocabulary","parallel","chat_template"}, "answers": [ANSWER, …]}
// ANSWER: {"match": TEXT, "refuse": {"kind","message","parameter","retry"}, "events": [EVENT, …]};
// the first answer whose "match" stands in the last message (or the prompt) is played; without
// "match" it fits everything. EVENT has one of:
//   "queued": N · "started": {"prompt","cached"} · "progress": {"total","cached","done","seconds"}
//   "reasoning": TEXT · "content": TEXT, each with "logprobs": [{"token","logprob","top"}]
//   "call": {"id","name"} · "arguments": TEXT · "call_end": true (they count calls by themselves)
//   "delay": SECONDS · "repeat": N with "events" (N < 0: until cancelled)
//   "say_request": true (content: the request as it was understood, as JSON)
//   "end": "stop|stop_text|tool_calls|length|context|error", with "message", "usage"
// and "choice": N; without it an event is of all choices. "started" and "end" are added where they
// are missing. A token of tokenize() is a byte, and 0 begins a text.
std::unique_ptr<AnswerService> make_scripted_service(OrderedJson script);

}  // namespace moepack::test
