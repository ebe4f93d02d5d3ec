#include "runtime/score/log_softmax.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/score/ranked_logits.h"

namespace moepack {
namespace {

// The id that ranks first; none where a logit is no logit.
std::optional<std::size_t> top_of(std::span<const float> logits, const PartLoop& loop) {
  constexpr std::int32_t kBad = -1;
  std::vector<std::int32_t> tops(vocab_parts(logits.size()));
  for_each_vocab_part(logits.size(), loop,
                      [&](std::size_t part, std::size_t begin, std::size_t end) {
                        const std::span<const float> of_part = logits.subspan(begin, end - begin);
                        tops[part] = check_logits(of_part).is_ok() ? highest_logit(of_part) : kBad;
                      });
  std::size_t top = 0;
  for (std::size_t part = 0; part < tops.size(); ++part) {
    if (tops[part] == kBad) return std::nullopt;
    const std::size_t id = part * kVocabPart + static_cast<std::size_t>(tops[part]);
    if (logits[id] > logits[top]) top = id;
  }
  return top;
}

}  // namespace

Result<LogNormalizer> log_normalizer(std::span<const float> logits, const PartLoop& loop) {
  if (logits.empty()) return no_finite_logit();
  const std::optional<std::size_t> top = top_of(logits, loop);
  if (!top.has_value()) return check_logits(logits);
  if (std::isinf(logits[*top])) return no_finite_logit();
  const float max = logits[*top];
  const double sum = sum_by_parts(logits.size(), loop, [&](std::size_t begin, std::size_t end) {
    double of_part = 0.0;
    for (std::size_t i = begin; i < end; ++i) of_part += std::exp(double{logits[i]} - max);
    return of_part;
  });
  return LogNormalizer{.log_z = max + std::log(sum), .top = *top, .max = max};
}

double kl_divergence(const LogProbs& base, double floor, const LogProbs& model,
                     const PartLoop& loop) {
  return sum_by_parts(base.logits.size(), loop, [&](std::size_t begin, std::size_t end) {
    double of_part = 0.0;
    for (std::size_t i = begin; i < end; ++i) {
      const double log_p0 = double{base.logits[i]} - base.log_z;
      if (!(log_p0 > floor)) continue;
      const double p0 = std::exp(log_p0);
      if (p0 > 0) of_part += p0 * (log_p0 - (double{model.logits[i]} - model.log_z));
    }
    return of_part;
  });
}

}  // namespace moepack
