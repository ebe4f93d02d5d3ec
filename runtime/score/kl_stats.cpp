#include "runtime/score/kl_stats.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/score/ranked_logits.h"

namespace moepack {

struct KlAccumulator::Score {
  double nll;
  double nll_base;
  double kld;
  bool same_top;
};

namespace {

// With fewer scores than this llama-perplexity reports no uncertainty.
constexpr std::size_t kMinScoresForError = 11;
constexpr std::size_t kMinScoresForCovariance = 10;

Status check_shapes(std::size_t base_size, std::size_t size, std::int32_t target) {
  if (base_size != size) {
    return invalid_argument("the base has " + std::to_string(base_size) +
                                " probabilities per token, the model " + std::to_string(size),
                            "compare models of one vocabulary");
  }
  if (target < 0 || static_cast<std::size_t>(target) >= size) {
    return invalid_argument("token id " + std::to_string(target) + " is outside the model's " +
                            std::to_string(size) + " logits");
  }
  return Status::ok();
}

}  // namespace

Status KlAccumulator::add(std::span<const float> base_logits, std::span<const float> logits,
                          std::int32_t target) {
  MOE_RETURN_IF_ERROR(check_shapes(base_logits.size(), logits.size(), target));
  MOE_ASSIGN_OR_RETURN(const LogNormalizer base, log_normalizer(base_logits, loop_));
  return compare({base_logits, base.log_z}, base.top, kNoFloor, logits, target);
}

Status KlAccumulator::add_log_probs(std::span<const float> base_log_probs,
                                    std::span<const float> logits, std::int32_t target) {
  MOE_RETURN_IF_ERROR(check_shapes(base_log_probs.size(), logits.size(), target));
  const auto top = static_cast<std::size_t>(highest_logit(base_log_probs));
  return compare({base_log_probs}, top, kBaseFileFloor, logits, target);
}

Status KlAccumulator::compare(const LogProbs& base, std::size_t base_top, double floor,
                              std::span<const float> logits, std::int32_t target) {
  MOE_ASSIGN_OR_RETURN(const LogNormalizer q, log_normalizer(logits, loop_));
  const auto at = static_cast<std::size_t>(target);
  push({.nll = q.log_z - double{logits[at]},
        .nll_base = base.log_z - double{base.logits[at]},
        .kld = kl_divergence(base, floor, {logits, q.log_z}, loop_),
        .same_top = base_top == q.top});
  return Status::ok();
}

void KlAccumulator::push(const Score& score) {
  nll_.add(score.nll);
  nll_base_.add(score.nll_base);
  sum_nll_product_ += score.nll * score.nll_base;
  kl_.add(score.kld);
  const double dp = std::exp(-score.nll) - std::exp(-score.nll_base);
  dp_moments_.add(dp);
  dp_squared_.add(dp * dp);
  same_top_ += score.same_top ? 1 : 0;
  kld_.push_back(score.kld);
  dp_.push_back(dp);
}

Estimate KlAccumulator::mean(const Moments& moments) const {
  const auto n = static_cast<double>(count());
  Estimate result{.value = moments.sum / n};
  const double variance = moments.sum_of_squares / n - result.value * result.value;
  if (variance > 0.0 && count() >= kMinScoresForError) {
    result.error = std::sqrt(variance / (n - 1.0));
  }
  return result;
}

KlSummary KlAccumulator::summary() const {
  KlSummary s;
  if (count() == 0) return s;
  const auto n = static_cast<double>(count());
  s.tokens_scored = count();
  const auto through_exp = [](const Estimate& log) {
    return Estimate{.value = std::exp(log.value), .error = std::exp(log.value) * log.error};
  };
  // The error of a difference, from the covariance of its terms. Rounding may push the variance
  // just below zero.
  const auto difference_error = [](double a, double b, double covariance) {
    return std::sqrt(std::max(0.0, a * a + b * b - 2.0 * covariance));
  };
  const Estimate nll = mean(nll_);
  const Estimate nll_base = mean(nll_base_);
  double covariance = 0.0;
  if (count() >= kMinScoresForCovariance) {
    covariance = (sum_nll_product_ / n - nll.value * nll_base.value) / (n - 1.0);
  }
  s.ppl = through_exp(nll);
  s.ppl_base = through_exp(nll_base);
  const double spread = nll.error * nll_base.error;
  s.correlation = spread > 0.0 ? covariance / spread : 0.0;
  s.ln_ppl_ratio = {.value = nll.value - nll_base.value,
                    .error = difference_error(nll.error, nll_base.error, covariance)};
  s.ppl_ratio = through_exp(s.ln_ppl_ratio);
  s.ppl_difference = {.value = s.ppl.value - s.ppl_base.value,
                      .error = difference_error(s.ppl.error, s.ppl_base.error,
                                                s.ppl.value * s.ppl_base.value * covariance)};
  s.kld = mean(kl_);
  s.dp = mean(dp_moments_);
  const Estimate squared = mean(dp_squared_);
  s.rms_dp.value = std::sqrt(squared.value);
  if (s.rms_dp.value > 0.0) s.rms_dp.error = 0.5 / s.rms_dp.value * squared.error;
  s.same_top.value = static_cast<double>(same_top_) / n;
  if (count() > 1) {
    s.same_top.error = std::sqrt(s.same_top.value * (1.0 - s.same_top.value) / (n - 1.0));
  }
  return s;
}

double percentile(std::span<const double> sorted, double fraction) {
  const double rank = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = rank - static_cast<double>(below);
  // A single element is not taken as a weighted sum, because 0 * infinity is not a number.
  return part > 0.0 ? (1.0 - part) * sorted[below] + part * sorted[above] : sorted[below];
}

KlReport KlAccumulator::report() const {
  KlReport report{.summary = summary()};
  if (count() == 0) return report;
  std::vector<double> sorted = kld_;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < kKldPercentiles.size(); ++i) {
    report.kld[i] = percentile(sorted, kKldPercentiles[i].fraction);
  }
  sorted = dp_;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < kDpPercentiles.size(); ++i) {
    report.dp[i] = percentile(sorted, kDpPercentiles[i].fraction);
  }
  return report;
}

}  // namespace moepack
