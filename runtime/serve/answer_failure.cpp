#include "runtime/serve/answer_failure.h"

namespace moepack {

std::optional<ApiError> answer_failure(const AnswerEnd& end) {
  if (end.reason == AnswerEndReason::kError) {
    return ApiError{.kind = ApiErrorKind::kServer, .message = end.status.message()};
  }
  if (end.reason == AnswerEndReason::kCancelled) {
    return ApiError{.kind = ApiErrorKind::kUnavailable, .message = "the answer was cancelled"};
  }
  return std::nullopt;
}

bool is_cut_answer(const AnswerEnd& end) {
  return end.reason == AnswerEndReason::kLength || end.reason == AnswerEndReason::kContext;
}

ApiError broken_call(const AnswerBlock& call) {
  return {.kind = ApiErrorKind::kServer,
          .message = "the model called " + call.name +
                     " with arguments that are no whole JSON object: ask again"};
}

}  // namespace moepack
