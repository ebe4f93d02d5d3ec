#include "runtime/score/log_softmax.h"

#include <cmath>

#include "runtime/score/ranked_logits.h"

namespace moepack {

Result<LogNormalizer> log_normalizer(std::span<const float> logits) {
  MOE_RETURN_IF_ERROR(check_logits(logits));
  const std::size_t top = logits.empty() ? 0 : static_cast<std::size_t>(highest_logit(logits));
  if (logits.empty() || std::isinf(logits[top])) return no_finite_logit();
  const float max = logits[top];
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  return LogNormalizer{.log_z = max + std::log(sum), .top = top, .max = max};
}

}  // namespace moepack
