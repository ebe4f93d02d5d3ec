// Objects that answers of OpenAI's Responses API are made of.
#pragma once

#include <string>
#include <vector>

#include "runtime/serve/answer_blocks.h"
#include "runtime/serve/responses_answer.h"

namespace moepack {

// "rs_…", "msg_…", "fc_…": unique among the items of all answers.
std::string response_item_id(const ResponseIdentity& identity, const AnswerBlock& block,
                             std::size_t index);
// An item before its first piece, and at its end.
OrderedJson begun_response_item(const AnswerBlock& block, const std::string& id);
OrderedJson ended_response_item(const AnswerBlock& block, const std::string& id);
// {"type":"output_text",…}
OrderedJson response_text_part(const std::string& text, const std::vector<TokenLogprobs>& logprobs);
OrderedJson response_logprobs(const std::vector<TokenLogprobs>& logprobs);
// A call's arguments: never empty.
const std::string& response_arguments(const AnswerBlock& block);

// The object around all: `status` "in_progress", "completed", "incomplete", "failed". With
// `is_brief` it leaves out what repeats the request.
OrderedJson response_object(const ResponseIdentity& identity, const std::string& status,
                            OrderedJson output, bool is_brief);
// At the end of an answer that is none's failure: with output and usage.
OrderedJson ended_response(const ResponseIdentity& identity, const std::vector<AnswerBlock>& blocks,
                           const AnswerEnd& end);

}  // namespace moepack
