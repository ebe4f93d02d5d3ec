// Probabilities of logits, in double whatever the logits' range.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "formats/base/status.h"
#include "runtime/score/part_loop.h"

namespace moepack {

struct LogNormalizer {
  double log_z = 0.0;   // log sum_i exp(logits[i]); ln p(i) = logits[i] - log_z
  std::size_t top = 0;  // highest logit, lowest id among equals
  double max = 0.0;     // its logit
};

// kCorrupt, with the id, when a logit is NaN or +inf, or when none is finite. A logit of -inf
// stands for probability 0. The same bits whatever `loop` is. Pure; any number of threads.
Result<LogNormalizer> log_normalizer(std::span<const float> logits, const PartLoop& loop = {});

// Natural log-probabilities: ln p(i) = logits[i] - log_z. Refers to the logits.
struct LogProbs {
  std::span<const float> logits;
  double log_z = 0.0;  // 0 where the logits are log-probabilities already
};

// A floor that leaves out nothing.
constexpr double kNoFloor = -std::numeric_limits<double>::infinity();

// The Kullback-Leibler divergence of `model` from `base`, sum_i p0(i) (ln p0(i) - ln p(i)), over
// the tokens with ln p0(i) > floor. Both have the same tokens, none NaN. A token to which the base
// gives nothing adds nothing; one to which only the model gives nothing makes it infinite. The same
// bits whatever `loop` is. Pure; any number of threads.
double kl_divergence(const LogProbs& base, double floor, const LogProbs& model,
                     const PartLoop& loop = {});

}  // namespace moepack
