#include "runtime/score/log_softmax.h"

#include <cmath>
#include <limits>
#include <string>

namespace moepack {

Result<LogNormalizer> log_normalizer(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr const char* kRemedy =
      "moepack verify finds damage; if there is none, weights of the source are not finite "
      "(moepack convert names them)";
  float max = -kInfinity;
  LogNormalizer result;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) {
      return make_error(StatusCode::kCorrupt, Where{},
                        "the logit of token " + std::to_string(i) + " is not a finite number",
                        kRemedy);
    }
    if (logits[i] > max) {
      max = logits[i];
      result.top = i;
    }
  }
  if (max == -kInfinity) {
    return make_error(StatusCode::kCorrupt, Where{}, "no token has a finite logit", kRemedy);
  }
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  result.max = max;
  result.log_z = max + std::log(sum);
  return result;
}

}  // namespace moepack
