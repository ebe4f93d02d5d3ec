#include "runtime/token_chances.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/score/log_softmax.h"

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
  const std::size_t count = std::min(top, logits.size());
  if (count == 0) return step;
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = logits[static_cast<std::size_t>(a)];
                      const float y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  step.top.reserve(count);
  for (std::size_t i = 0; i < count; ++i) step.top.push_back(chance(ids[i]));
  return step;
}

}  // namespace moepack
