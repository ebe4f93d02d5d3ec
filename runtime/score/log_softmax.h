// Probabilities of logits, in double whatever the logits' range.
#pragma once

#include <cstddef>
#include <span>

#include "formats/base/status.h"

namespace moepack {

struct LogNormalizer {
  double log_z = 0.0;   // log sum_i exp(logits[i]); ln p(i) = logits[i] - log_z
  std::size_t top = 0;  // highest logit, lowest id among equals
  double max = 0.0;     // its logit
};

// kCorrupt, with the id, when a logit is NaN or +inf, or when none is finite. A logit of -inf
// stands for probability 0. Pure; any number of threads.
Result<LogNormalizer> log_normalizer(std::span<const float> logits);

}  // namespace moepack
