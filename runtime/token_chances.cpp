#include "runtime/token_chances.h"

#include <cmath>
#include <string>

#include "runtime/score/log_softmax.h"
#include "runtime/score/ranked_logits.h"

namespace moepack {

Result<TokenStep> token_chances(std::span<const float> logits, std::int32_t id, std::size_t top) {
  if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) {
    return invalid_argument("token " + std::to_string(id) + " has no logit among " +
                            std::to_string(logits.size()));
  }
  MOE_ASSIGN_OR_RETURN(const LogNormalizer normalizer, log_normalizer(logits));
  const auto chance = [&](std::int32_t of) {
    const double logit = logits[static_cast<std::size_t>(of)];
    return TokenChance{of, static_cast<float>(logit - normalizer.log_z)};
  };
  TokenStep step;
  step.token = chance(id);
  std::vector<RankedLogit> best;
  best_logits(logits, top, best);
  for (const RankedLogit& b : best) step.top.push_back(chance(b.id));
  // Behind what can come what never does.
  for (std::size_t i = 0; i < logits.size() && step.top.size() < top; ++i) {
    if (std::isinf(logits[i])) step.top.push_back(chance(static_cast<std::int32_t>(i)));
  }
  return step;
}

}  // namespace moepack
