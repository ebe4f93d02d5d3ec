#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/model/finite.h"

namespace moepack {
namespace {

constexpr auto kRanksBefore = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

// Uniform in [0, 1): the 53 high bits, exactly representable.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11U) * 0x1p-53; }

}  // namespace

Result<Sampler> Sampler::create(const SamplerOptions& options, std::size_t vocab_limit) {
  if (!std::isfinite(options.temperature) || !std::isfinite(options.top_p) ||
      !std::isfinite(options.min_p)) {
    return invalid_argument("temperature, top-p and min-p must be finite numbers");
  }
  if (options.min_p > 1.0F) return invalid_argument("min-p above 1 would drop every token");
  if (vocab_limit == 0) return invalid_argument("the tokenizer has no tokens to draw");
  return Sampler(options, vocab_limit);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  MOE_RETURN_IF_ERROR(collect(logits.first(std::min(logits.size(), vocab_limit_))));
  if (options_.temperature <= 0.0F) {
    return std::min_element(candidates_.begin(), candidates_.end(), kRanksBefore)->id;
  }
  keep_top_k();
  keep_top_p_and_min_p();
  return draw();
}

Status Sampler::collect(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
      return make_error(StatusCode::kCorrupt, Where{},
                        "the logit of token " + std::to_string(i) + " is " +
                            (std::isnan(logit) ? "not a number" : "infinite"),
                        kNotFiniteRemedy);
    }
    if (std::isinf(logit)) continue;  // probability 0
    candidates_.push_back({logit, static_cast<std::int32_t>(i)});
  }
  if (candidates_.empty()) {
    return make_error(StatusCode::kCorrupt, Where{}, "no token has a finite logit",
                      kNotFiniteRemedy);
  }
  return Status::ok();
}

void Sampler::keep_top_k() {
  if (options_.top_k <= 0) return;
  const auto k = std::min(static_cast<std::size_t>(options_.top_k), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                    candidates_.end(), kRanksBefore);
  candidates_.resize(k);
}

// Both cuts keep a prefix of the ranking, so the shorter one wins whichever comes first; only
// top-p's probabilities must be those from before min-p. Filtering by min-p first leaves less to
// sort.
void Sampler::keep_top_p_and_min_p() {
  const float highest =
      std::min_element(candidates_.begin(), candidates_.end(), kRanksBefore)->logit;
  const bool cut_by_top_p = options_.top_p < 1.0F;
  double total = 0.0;
  if (cut_by_top_p) {
    for (const Candidate& c : candidates_) total += std::exp(double{c.logit} - highest);
  }
  if (options_.min_p > 0.0F) {
    const double lowest = double{highest} + std::log(double{options_.min_p});
    std::erase_if(candidates_, [lowest](const Candidate& c) { return c.logit < lowest; });
  }
  // Also without top-p: the draw walks the ranking, so that the ids a seed gives depend on the
  // logits alone.
  std::sort(candidates_.begin(), candidates_.end(), kRanksBefore);
  if (!cut_by_top_p) return;
  double sum = 0.0;
  std::size_t kept = 0;
  while (kept < candidates_.size()) {
    sum += std::exp(double{candidates_[kept].logit} - highest);
    ++kept;
    if (sum >= double{options_.top_p} * total) break;
  }
  candidates_.resize(kept);
}

std::int32_t Sampler::draw() {
  const double highest = candidates_.front().logit;
  const double temperature = options_.temperature;
  const auto weight = [=](const Candidate& c) {
    return std::exp((double{c.logit} - highest) / temperature);
  };
  double total = 0.0;
  for (const Candidate& c : candidates_) total += weight(c);
  const double target = uniform(random_) * total;
  double sum = 0.0;
  for (const Candidate& c : candidates_) {
    sum += weight(c);
    if (sum > target) return c.id;
  }
  return candidates_.front().id;  // unreachable: target < total, summed in the same order
}

}  // namespace moepack
