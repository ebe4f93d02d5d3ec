// Statistics of how far one model's predictions ("Q") lie from another's ("base"), token by token:
// the numbers, labels and layout of llama-perplexity --kl-divergence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "formats/base/status.h"
#include "runtime/score/log_softmax.h"
#include "runtime/score/part_loop.h"

namespace moepack {

struct Estimate {
  double value = 0.0;
  double error = 0.0;  // standard error; 0 for too few scores
};

// The statistics that are known after any number of scores. Probabilities and fractions are 0…1,
// never percent. With p and p0 the probabilities that Q and the base give to the true next token,
// ln PPL = -mean ln p and dp = p - p0. The KL divergence of a score is
// sum_i p0(i) (ln p0(i) - ln p(i)). Errors are standard errors of means, propagated to first order
// with the covariance of ln p and ln p0.
struct KlSummary {
  std::size_t tokens_scored = 0;
  Estimate ppl;
  Estimate ppl_base;
  double correlation = 0.0;  // of ln p and ln p0; 0 where it is undefined
  Estimate ln_ppl_ratio;     // ln(PPL(Q) / PPL(base))
  Estimate ppl_ratio;        // PPL(Q) / PPL(base)
  Estimate ppl_difference;   // PPL(Q) - PPL(base)
  Estimate kld;
  Estimate dp;
  Estimate rms_dp;
  Estimate same_top;  // fraction of scores where both have the same most likely token
};

// A row of the percentile tables.
struct Percentile {
  const char* label;  // as printed
  const char* key;    // as in JSON, to be prefixed with kld_ or dp_
  double fraction;    // 1: largest
};
constexpr std::array<Percentile, 11> kKldPercentiles{{{"Maximum", "max", 1.0},
                                                      {"99.9%  ", "p99_9", 0.999},
                                                      {"99.0%  ", "p99", 0.99},
                                                      {"95.0%  ", "p95", 0.95},
                                                      {"90.0%  ", "p90", 0.9},
                                                      {"Median ", "median", 0.5},
                                                      {"10.0%  ", "p10", 0.1},
                                                      {" 5.0%  ", "p5", 0.05},
                                                      {" 1.0%  ", "p1", 0.01},
                                                      {" 0.1%  ", "p0_1", 0.001},
                                                      {"Minimum", "min", 0.0}}};
constexpr std::array<Percentile, 13> kDpPercentiles{{{"Maximum", "max", 1.0},
                                                     {"99.9%  ", "p99_9", 0.999},
                                                     {"99.0%  ", "p99", 0.99},
                                                     {"95.0%  ", "p95", 0.95},
                                                     {"90.0%  ", "p90", 0.9},
                                                     {"75.0%  ", "p75", 0.75},
                                                     {"Median ", "median", 0.5},
                                                     {"25.0%  ", "p25", 0.25},
                                                     {"10.0%  ", "p10", 0.1},
                                                     {" 5.0%  ", "p5", 0.05},
                                                     {" 1.0%  ", "p1", 0.01},
                                                     {" 0.1%  ", "p0_1", 0.001},
                                                     {"Minimum", "min", 0.0}}};

struct KlReport {
  KlSummary summary;
  std::array<double, kKldPercentiles.size()> kld{};  // of kKldPercentiles, in order
  std::array<double, kDpPercentiles.size()> dp{};    // of kDpPercentiles, in order
};

// Interpolates linearly between the two nearest ranks of `sorted` (ascending, not empty).
double percentile(std::span<const double> sorted, double fraction);

// Base log-probabilities at or below this are left out of the divergence when they come from a base
// file, which cannot tell them from zero. llama-perplexity leaves them out too.
constexpr double kBaseFileFloor = -16.0;

// Gathers scores. Memory: 16 bytes a score. Not thread-safe.
class KlAccumulator {
 public:
  // `loop` shares the work on a score; the numbers do not depend on it.
  explicit KlAccumulator(PartLoop loop = {}) : loop_(std::move(loop)) {}

  // Adds an exact score from both runs' logits for the same position, [vocab_size] each, computed
  // in double. kCorrupt for logits without a distribution (NaN, +inf, none finite);
  // kInvalidArgument when the sizes differ or `target` is no index. A token to which Q gives
  // probability 0 and the base does not makes the divergence infinite, as its definition says.
  Status add(std::span<const float> base_logits, std::span<const float> logits,
             std::int32_t target);
  // Adds a score whose base is natural log-probabilities, as a base file stores them.
  Status add_log_probs(std::span<const float> base_log_probs, std::span<const float> logits,
                       std::int32_t target);

  std::size_t count() const { return kld_.size(); }
  KlSummary summary() const;
  // Sorts copies of all scores. Without scores every number is 0.
  KlReport report() const;

 private:
  struct Score;
  struct Moments {
    double sum = 0.0;
    double sum_of_squares = 0.0;
    void add(double x) {
      sum += x;
      sum_of_squares += x * x;
    }
  };
  Estimate mean(const Moments& moments) const;
  Status compare(const LogProbs& base, std::size_t base_top, double floor,
                 std::span<const float> logits, std::int32_t target);
  void push(const Score& score);

  PartLoop loop_;
  Moments nll_, nll_base_, kl_, dp_moments_, dp_squared_;
  double sum_nll_product_ = 0.0;
  std::size_t same_top_ = 0;
  std::vector<double> kld_;
  std::vector<double> dp_;
};

}  // namespace moepack
