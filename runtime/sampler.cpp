#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace moepack {
namespace {

// Uniform in [0, 1): the 53 high bits, exactly representable.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11U) * 0x1p-53; }

Status check_cuts(const SamplerOptions& options) {
  if (!std::isfinite(options.temperature) || !std::isfinite(options.top_p) ||
      !std::isfinite(options.min_p)) {
    return invalid_argument("temperature, top-p and min-p must be finite numbers");
  }
  if (options.min_p > 1.0F) return invalid_argument("min-p above 1 would drop every token");
  if (!std::isfinite(options.typical_p)) {
    return invalid_argument("typical-p must be a finite number");
  }
  return Status::ok();
}

Status check_penalties(const SamplerOptions& options) {
  if (!std::isfinite(options.repetition_penalty) || options.repetition_penalty <= 0.0F) {
    return invalid_argument("the penalty of repetition must be a finite number above 0");
  }
  if (options.repeat_last_n < -1) {
    return invalid_argument("the penalty of repetition looks at -1 (all), 0 or more tokens");
  }
  if (!std::isfinite(options.frequency_penalty) || !std::isfinite(options.presence_penalty)) {
    return invalid_argument("penalties of frequency and presence must be finite numbers");
  }
  return Status::ok();
}

Status check_biases(const SamplerOptions& options, std::size_t vocab_limit) {
  for (const LogitBias& bias : options.logit_bias) {
    if (bias.id < 0 || static_cast<std::size_t>(bias.id) >= vocab_limit) {
      return invalid_argument("a bias is given for token " + std::to_string(bias.id) +
                              ", which does not exist");
    }
    if (std::isnan(bias.bias) || bias.bias == std::numeric_limits<float>::infinity()) {
      return invalid_argument("the bias of token " + std::to_string(bias.id) +
                              " must be a finite number or -infinity");
    }
  }
  return Status::ok();
}

// What a candidate is drawn with, as a part of the highest one's.
double weight(const RankedLogit& candidate, float highest, double temperature) {
  return std::exp((double{candidate.logit} - highest) / temperature);
}

// A finite logit stays one however large the change is, unless it becomes -infinity.
float bounded(float changed) { return std::min(changed, std::numeric_limits<float>::max()); }

}  // namespace

Result<Sampler> Sampler::create(const SamplerOptions& options, std::size_t vocab_limit) {
  if (vocab_limit == 0) return invalid_argument("the tokenizer has no tokens to draw");
  MOE_RETURN_IF_ERROR(check_cuts(options));
  MOE_RETURN_IF_ERROR(check_penalties(options));
  MOE_RETURN_IF_ERROR(check_biases(options, vocab_limit));
  return Sampler(options, vocab_limit);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, TokenFilter* filter) {
  if (filter != nullptr && !filter->is_active()) filter = nullptr;
  logits = adjusted(logits.first(std::min(logits.size(), vocab_limit_)), filter != nullptr);
  MOE_RETURN_IF_ERROR(rank(logits, filter));
  if (options_.temperature <= 0.0F) return candidates_.front().id;
  keep_typical();
  keep_top_p_and_min_p();
  return draw();
}

void Sampler::follow(std::span<const std::int32_t> prompt) {
  if (options_.repeat_last_n >= 0) {
    prompt = prompt.last(std::min(prompt.size(), static_cast<std::size_t>(options_.repeat_last_n)));
  }
  for (const std::int32_t id : prompt) note_recent(id);
}

void Sampler::accept(std::int32_t id) {
  if (options_.frequency_penalty != 0.0F || options_.presence_penalty != 0.0F) ++accepted_[id];
  note_recent(id);
}

void Sampler::note_recent(std::int32_t id) {
  if (options_.repetition_penalty == 1.0F || options_.repeat_last_n == 0) return;
  ++recent_[id];
  if (options_.repeat_last_n < 0) return;
  window_.push_back(id);
  if (window_.size() <= static_cast<std::size_t>(options_.repeat_last_n)) return;
  const auto oldest = recent_.find(window_.front());
  if (--oldest->second == 0) recent_.erase(oldest);
  window_.pop_front();
}

// The logits themselves where nothing changes them, so that they are not copied. Beside a filter a
// biased token stays possible: it may be the only one that is allowed.
std::span<const float> Sampler::adjusted(std::span<const float> logits, bool is_filtered) {
  if (options_.logit_bias.empty() && accepted_.empty() && recent_.empty()) return logits;
  changed_.assign(logits.begin(), logits.end());
  for (const LogitBias& bias : options_.logit_bias) {
    const auto id = static_cast<std::size_t>(bias.id);
    // Not of NaN and +inf, which are errors that must stay seen.
    if (id < changed_.size() && std::isfinite(changed_[id])) {
      changed_[id] = bounded(changed_[id] + bias.bias);
    }
  }
  penalise(changed_);
  for (const LogitBias& bias : options_.logit_bias) {
    const auto id = static_cast<std::size_t>(bias.id);
    if (!is_filtered || id >= logits.size() || !std::isfinite(logits[id])) continue;
    changed_[id] = std::max(changed_[id], std::numeric_limits<float>::lowest());
  }
  return changed_;
}

void Sampler::penalise(std::span<float> logits) const {
  const auto is_penalised = [&](std::int32_t id) {
    return id >= 0 && static_cast<std::size_t>(id) < logits.size() &&
           std::isfinite(logits[static_cast<std::size_t>(id)]);
  };
  for (const auto& [id, count] : recent_) {
    if (!is_penalised(id)) continue;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = bounded(logit <= 0.0F ? logit * options_.repetition_penalty
                                  : logit / options_.repetition_penalty);
  }
  for (const auto& [id, count] : accepted_) {
    if (!is_penalised(id)) continue;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = bounded(logit - (static_cast<float>(count) * options_.frequency_penalty +
                             options_.presence_penalty));
  }
}

// What top-k leaves of the tokens that the filter allows; greedy: the highest alone.
Status Sampler::rank(std::span<const float> logits, TokenFilter* filter) {
  const bool is_cut = options_.temperature <= 0.0F || options_.top_k > 0;
  if (filter == nullptr || is_cut) {
    MOE_RETURN_IF_ERROR(collect(logits));
    if (filter == nullptr || may_keep(*filter)) return Status::ok();
  }
  if (logits.data() != changed_.data()) changed_.assign(logits.begin(), logits.end());
  filter->mask(changed_);
  return collect(changed_);
}

// Where all of the k highest are allowed, they are the k highest of those that are allowed.
bool Sampler::may_keep(TokenFilter& filter) const {
  return std::all_of(candidates_.begin(), candidates_.end(),
                     [&](const RankedLogit& c) { return filter.allows(c.id); });
}

// The candidates that top-k leaves, ranked; all that have a probability, by id, where it is off.
Status Sampler::collect(std::span<const float> logits) {
  MOE_RETURN_IF_ERROR(check_logits(logits));
  const bool is_greedy = options_.temperature <= 0.0F;
  const bool is_ranked = is_greedy || options_.top_k > 0;
  if (is_ranked) {
    best_logits(logits, is_greedy ? 1 : static_cast<std::size_t>(options_.top_k), candidates_);
  } else {
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!std::isinf(logits[i])) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
    }
  }
  ranked_ = is_ranked ? candidates_.size() : 0;
  return candidates_.empty() ? no_finite_logit() : Status::ok();
}

// Not a prefix of the ranking: what is nearly certain may go too.
void Sampler::keep_typical() {
  if (options_.typical_p >= 1.0F) return;
  const float highest = highest_logit_left();
  ranked(candidates_.size() - 1);  // of as surprising ones the more probable stay
  const double log_total = std::log(weight_sum(highest, 1.0));
  struct Typical {
    double distance, probability;
    RankedLogit candidate;
  };
  std::vector<Typical> order;
  order.reserve(candidates_.size());
  double entropy = 0.0;
  for (const RankedLogit& c : candidates_) {
    const double surprise = log_total - (double{c.logit} - highest);
    const double probability = std::exp(-surprise);
    if (probability > 0.0) entropy += probability * surprise;
    order.push_back({surprise, probability, c});
  }
  for (Typical& t : order) t.distance = std::abs(t.distance - entropy);
  std::stable_sort(order.begin(), order.end(),
                   [](const Typical& a, const Typical& b) { return a.distance < b.distance; });
  candidates_.clear();
  ranked_ = 0;
  double sum = 0.0;
  for (const Typical& t : order) {
    candidates_.push_back(t.candidate);
    sum += t.probability;
    if (sum > double{options_.typical_p}) break;
  }
}

// The sum of what draw() and top-p weigh the candidates with.
double Sampler::weight_sum(float highest, double temperature) const {
  double sum = 0.0;
  for (const RankedLogit& c : candidates_) sum += weight(c, highest, temperature);
  return sum;
}

// Changes no order, in which weights are summed.
float Sampler::highest_logit_left() const {
  if (ranked_ > 0) return candidates_.front().logit;
  return std::min_element(candidates_.begin(), candidates_.end(), ranks_before)->logit;
}

// The candidate that ranks at `place`. Ranks no further than is asked, several times as many at
// once: what is drawn is nearly always among the first of a whole vocabulary.
const RankedLogit& Sampler::ranked(std::size_t place) {
  constexpr std::size_t kFirst = 256;
  if (place >= ranked_) {
    const std::size_t end = std::min(candidates_.size(), std::max(kFirst, 8 * place));
    const auto at = [&](std::size_t i) {
      return candidates_.begin() + static_cast<std::ptrdiff_t>(i);
    };
    if (end < candidates_.size()) {
      std::nth_element(at(ranked_), at(end), candidates_.end(), ranks_before);
    }
    std::sort(at(ranked_), at(end), ranks_before);
    ranked_ = end;
  }
  return candidates_[place];
}

// Both cuts keep a prefix of the ranking, so the shorter one wins whichever comes first; only
// top-p's probabilities must be those from before min-p. Filtering by min-p first leaves less to
// rank.
void Sampler::keep_top_p_and_min_p() {
  const float highest = highest_logit_left();
  const bool cut_by_top_p = options_.top_p < 1.0F;
  const double total = cut_by_top_p ? weight_sum(highest, 1.0) : 0.0;
  if (options_.min_p > 0.0F) {
    const double lowest = double{highest} + std::log(double{options_.min_p});
    std::erase_if(candidates_, [lowest](const RankedLogit& c) { return c.logit < lowest; });
    ranked_ = std::min(ranked_, candidates_.size());  // what went ranks behind what stays
  }
  if (!cut_by_top_p) return;
  double sum = 0.0;
  std::size_t kept = 0;
  while (kept < candidates_.size()) {
    sum += weight(ranked(kept), highest, 1.0);
    ++kept;
    if (sum >= double{options_.top_p} * total) break;
  }
  candidates_.resize(kept);
  ranked_ = kept;
}

// Walks the ranking, so that the ids a seed gives depend on the logits alone.
std::int32_t Sampler::draw() {
  const float highest = highest_logit_left();
  const double temperature = options_.temperature;
  const double target = uniform(random_) * weight_sum(highest, temperature);
  double sum = 0.0;
  for (std::size_t place = 0; place < candidates_.size(); ++place) {
    const RankedLogit& candidate = ranked(place);
    sum += weight(candidate, highest, temperature);
    if (sum > target) return candidate.id;
  }
  return candidates_.front().id;  // the sum in another order was a little larger
}

}  // namespace moepack
