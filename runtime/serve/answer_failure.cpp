#include "runtime/serve/answer_failure.h"

namespace moepack {

std::optional<ApiError> answer_failure(const AnswerEnd& end) {
  if (end.reason == AnswerEndReason::kError) {
    const std::string& said = end.status.message();
    return ApiError{.kind = ApiErrorKind::kServer,
                    .message = said.empty() ? "the answer failed" : said,
                    .should_retry = false};
  }
  if (end.reason == AnswerEndReason::kCancelled) {
    return ApiError{.kind = ApiErrorKind::kUnavailable,
                    .message = "the answer was cancelled, because the server ends",
                    .retry_seconds = kRetrySeconds};
  }
  return std::nullopt;
}

bool is_cut_answer(const AnswerEnd& end) {
  return end.reason == AnswerEndReason::kLength || end.reason == AnswerEndReason::kContext;
}

bool may_end_in_part(const AnswerEnd& end) {
  return is_cut_answer(end) || end.reason == AnswerEndReason::kStopText;
}

ApiError broken_call(const AnswerBlock& call) {
  return {.kind = ApiErrorKind::kServer,
          .message = "the model called " + call.name +
                     " with arguments that are no whole JSON object: ask again"};
}

}  // namespace moepack
