#include "runtime/score/log_softmax.h"

#include <cmath>
#include <string>

#include "runtime/score/ranked_logits.h"

namespace moepack {

Result<LogNormalizer> log_normalizer(std::span<const float> logits) {
  constexpr const char* kRemedy =
      "moepack verify finds damage; if there is none, weights of the source are not finite "
      "(moepack convert names them)";
  if (const auto bad = first_not_a_logit(logits); bad.has_value()) {
    return make_error(StatusCode::kCorrupt, Where{},
                      "the logit of token " + std::to_string(*bad) + " is not a finite number",
                      kRemedy);
  }
  const std::size_t top = logits.empty() ? 0 : static_cast<std::size_t>(highest_logit(logits));
  if (logits.empty() || std::isinf(logits[top])) {
    return make_error(StatusCode::kCorrupt, Where{}, "no token has a finite logit", kRemedy);
  }
  const float max = logits[top];
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  return LogNormalizer{.log_z = max + std::log(sum), .top = top, .max = max};
}

}  // namespace moepack
