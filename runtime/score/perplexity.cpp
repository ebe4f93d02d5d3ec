#include "runtime/score/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "runtime/score/log_softmax.h"

namespace moepack {
namespace {

constexpr std::size_t kMinHalfContext = 3;  // below it no position from context/2 on has a next

Status check_target(std::int32_t target, std::size_t vocab_size) {
  if (target >= 0 && static_cast<std::size_t>(target) < vocab_size) return Status::ok();
  return invalid_argument("token id " + std::to_string(target) + " is outside the model's " +
                              std::to_string(vocab_size) + " logits",
                          "the tokens come from another tokenizer");
}

}  // namespace

Result<std::vector<ScoreWindow>> plan_windows(std::size_t token_count,
                                              const PerplexityOptions& options) {
  const std::size_t context = options.context;
  const std::size_t min_context = options.all_positions ? 1 : kMinHalfContext;
  if (context < min_context) {
    return invalid_argument("a context of " + std::to_string(context) + " tokens scores nothing",
                            "use -c " + std::to_string(min_context) + " or more");
  }
  const std::size_t needed = options.all_positions ? 2 : context;
  if (token_count < needed) {
    return invalid_argument("the text has " + std::to_string(token_count) +
                                " tokens, one window needs " + std::to_string(needed),
                            "give a longer text or a smaller -c");
  }
  std::vector<ScoreWindow> windows;
  const std::size_t scored = options.all_positions ? token_count - 1 : token_count;
  for (std::size_t begin = 0; begin < scored; begin += context) {
    if (options.max_windows != 0 && windows.size() == options.max_windows) break;
    const std::size_t rest = scored - begin;
    if (options.all_positions) {
      windows.push_back({.begin = begin, .inputs = std::min(context, rest), .first = 0});
    } else if (rest >= context) {
      // The last token of a window predicts nothing, so it is not run.
      windows.push_back({.begin = begin, .inputs = context - 1, .first = context / 2});
    }
    if (rest <= context) break;
  }
  return windows;
}

void NllStats::add(double nll) {
  ++count_;
  sum_ += nll;
  sum_of_squares_ += nll * nll;
}

double NllStats::mean() const { return count_ == 0 ? 0.0 : sum_ / static_cast<double>(count_); }

double NllStats::perplexity() const { return std::exp(mean()); }

double NllStats::perplexity_error() const {
  if (count_ < 2) return 0.0;
  const auto n = static_cast<double>(count_);
  const double variance = sum_of_squares_ / n - mean() * mean();
  return variance > 0.0 ? perplexity() * std::sqrt(variance / (n - 1.0)) : 0.0;
}

WindowForward with_begin_of_text(WindowForward forward, std::span<const std::int32_t> ids) {
  if (ids.empty()) return forward;
  return [forward = std::move(forward), begin = std::vector<std::int32_t>(ids.begin(), ids.end())](
             std::span<const std::int32_t> tokens, std::size_t first, const LogitsSink& sink) {
    std::vector<std::int32_t> window(tokens.begin(), tokens.end());
    std::copy_n(begin.begin(), std::min(begin.size(), window.size()), window.begin());
    return forward(window, first, sink);
  };
}

Status run_windows(std::span<const std::int32_t> tokens, std::span<const ScoreWindow> windows,
                   const WindowForward& forward, const ScoreSink& sink,
                   const WindowDone& window_done) {
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const ScoreWindow& window = windows[w];
    if (window.inputs >= tokens.size() || window.begin >= tokens.size() - window.inputs) {
      return invalid_argument("window " + std::to_string(w) + " ends behind the tokens");
    }
    std::size_t expected = window.first;
    const auto score = [&](std::size_t index, std::span<const float> logits) -> Status {
      if (index != expected++ || index >= window.inputs) {
        return invalid_argument("the forward pass gave logits out of order");
      }
      const std::int32_t target = tokens[window.begin + index + 1];
      MOE_RETURN_IF_ERROR(check_target(target, logits.size()));
      return sink(logits, target);
    };
    MOE_RETURN_IF_ERROR(forward(tokens.subspan(window.begin, window.inputs), window.first, score));
    if (expected != window.inputs) {
      return invalid_argument("the forward pass left out logits of window " + std::to_string(w));
    }
    if (window_done) window_done(w + 1, windows.size());
  }
  return Status::ok();
}

Result<PerplexityReport> score_perplexity(std::span<const std::int32_t> tokens,
                                          const PerplexityOptions& options,
                                          const WindowForward& forward,
                                          const PerplexityProgress& progress,
                                          const ScoreSink& also) {
  MOE_ASSIGN_OR_RETURN(const std::vector<ScoreWindow> windows,
                       plan_windows(tokens.size(), options));
  NllStats stats;
  std::vector<double> nlls;
  const auto sink = [&](std::span<const float> logits, std::int32_t target) -> Status {
    MOE_ASSIGN_OR_RETURN(const LogNormalizer norm, log_normalizer(logits, options.loop));
    nlls.push_back(norm.log_z - double{logits[static_cast<std::size_t>(target)]});
    stats.add(nlls.back());
    return also ? also(logits, target) : Status::ok();
  };
  const auto window_done = [&](std::size_t done, std::size_t total) {
    if (progress) progress(done, total, stats);
  };
  MOE_RETURN_IF_ERROR(run_windows(tokens, windows, forward, sink, window_done));
  return PerplexityReport{.ppl = stats.perplexity(),
                          .ppl_error = stats.perplexity_error(),
                          .mean_nll = stats.mean(),
                          .tokens_scored = stats.count(),
                          .windows = windows.size(),
                          .nlls = std::move(nlls)};
}

Result<PerplexityChange> perplexity_change(const PerplexityReport& base,
                                           const PerplexityReport& changed) {
  if (base.nlls.size() != changed.nlls.size()) {
    return invalid_argument("there are " + std::to_string(base.nlls.size()) + " and " +
                            std::to_string(changed.nlls.size()) + " scores to compare");
  }
  NllStats differences;
  for (std::size_t i = 0; i < base.nlls.size(); ++i) {
    differences.add(changed.nlls[i] - base.nlls[i]);
  }
  return PerplexityChange{.ratio = differences.perplexity(),
                          .ratio_error = differences.perplexity_error(),
                          .difference = changed.ppl - base.ppl};
}

std::string format_window_ppl(std::size_t window, double ppl) {
  char text[64];
  std::snprintf(text, sizeof text, "[%zu]%.4f,", window, ppl);
  return text;
}

std::string format_final_ppl(const PerplexityReport& report) {
  char text[96];
  std::snprintf(text, sizeof text, "Final estimate: PPL = %.4f +/- %.5f", report.ppl,
                report.ppl_error);
  return text;
}

std::string format_ppl_change(const PerplexityReport& base, const PerplexityChange& change) {
  char text[128];
  std::snprintf(text, sizeof text, "Change: PPL(Q)/PPL(base) = %.5f +/- %.5f, PPL(base) = %.4f",
                change.ratio, change.ratio_error, base.ppl);
  return text;
}

}  // namespace moepack
