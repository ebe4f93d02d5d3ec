#include "runtime/chat/json_call_parser.h"

#include <utility>

namespace moepack {

OutputParserCore::CallStep JsonCallParser::begin_call(std::size_t at) {
  JsonCallHead head = match_head(at);
  if (head.match == MarkerMatch::kMaybe)
    return text_.is_ended() ? CallStep::kNoCall : CallStep::kWait;
  if (head.match == MarkerMatch::kNo || !is_callable(head.name)) return CallStep::kNoCall;
  start_call(at, head.size, std::move(head.id), std::move(head.name));
  json_ = LenientJson();
  if (!head.arguments) return CallStep::kGoesOn;
  sink_.arguments(*head.arguments);
  sink_.end_call();
  return CallStep::kEnded;
}

OutputParserCore::CallStep JsonCallParser::continue_call() {
  const std::string_view rest = text_.rest();
  std::string out;
  std::size_t at = 0;
  CallStep step = CallStep::kWait;
  for (; at < rest.size() && step == CallStep::kWait; ++at) {
    std::size_t which = 0;
    const MarkerMatch end = text_.match_any(at, ends_, &which);
    if (end == MarkerMatch::kYes && (ends_[which].is_added() || !json_.is_in_string())) {
      step = json_.close(out) ? CallStep::kEnded : CallStep::kBroken;
      break;
    }
    if (end == MarkerMatch::kMaybe && !json_.is_in_string()) break;
    const LenientJson::Step fed = json_.feed(rest[at], out);
    if (fed == LenientJson::Step::kDone) step = CallStep::kEnded;
    if (fed == LenientJson::Step::kBad || fed == LenientJson::Step::kDoneBefore) {
      step = CallStep::kBroken;
      break;
    }
  }
  sink_.arguments(out);
  take_of_call(at);
  if (step == CallStep::kEnded) sink_.end_call();
  return step;
}

}  // namespace moepack
