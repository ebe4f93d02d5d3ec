// When an answer has no end that a client could take for one.
#pragma once

#include <optional>

#include "runtime/serve/answer_blocks.h"
#include "runtime/serve/api_error.h"

namespace moepack {

// Ended by an error or by cancellation; nullopt: neither.
std::optional<ApiError> answer_failure(const AnswerEnd& end);

// Ended by a limit.
bool is_cut_answer(const AnswerEnd& end);

// Ended where the model did not: its last block may be a part only.
bool may_end_in_part(const AnswerEnd& end);

// A call with arguments that are not what a client may run.
ApiError broken_call(const AnswerBlock& call);

}  // namespace moepack
