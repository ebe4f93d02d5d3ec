// Perplexity of a token sequence, window by window, scored as llama-perplexity scores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/score/logits_sink.h"
#include "runtime/score/part_loop.h"

namespace moepack {

struct PerplexityOptions {
  std::size_t context = 512;  // tokens of a window, >= 3 (>= 1 with all_positions)
  // false: floor(n / context) full windows; in each, the logits of positions context/2 …
  //   context-2 predict the token behind them (255 scores for 512), as llama-perplexity does.
  // true: every token but the first is predicted once; windows of `context` inputs, input i
  //   predicts token i+1 even across the window's end, the last window may be shorter.
  bool all_positions = false;
  std::size_t max_windows = 0;  // 0: all
  PartLoop loop = {};           // shares the work on a score; the numbers do not depend on it
};

// tokens[begin, begin + inputs) run from a fresh state; the logits of input i in [first, inputs)
// predict tokens[begin + i + 1].
struct ScoreWindow {
  std::size_t begin = 0;
  std::size_t inputs = 0;
  std::size_t first = 0;
  std::size_t scores() const { return inputs - first; }
};

// kInvalidArgument when the context is too small or the tokens do not fill one window.
Result<std::vector<ScoreWindow>> plan_windows(std::size_t token_count,
                                              const PerplexityOptions& options);

// Sum of negative log-likelihoods (natural logarithm) and what follows from it.
class NllStats {
 public:
  void add(double nll);
  std::size_t count() const { return count_; }
  double mean() const;        // 0 without scores
  double perplexity() const;  // exp(mean)
  // llama-perplexity's ±: perplexity * sqrt((mean of squares - square of mean) / (count - 1)),
  // that is, the standard error of the mean carried through exp. 0 for fewer than two scores.
  double perplexity_error() const;

 private:
  std::size_t count_ = 0;
  double sum_ = 0.0;
  double sum_of_squares_ = 0.0;
};

struct PerplexityReport {
  double ppl = 0.0;
  double ppl_error = 0.0;
  double mean_nll = 0.0;
  std::size_t tokens_scored = 0;
  std::size_t windows = 0;
  std::vector<double> nlls = {};  // [tokens_scored] of each score, in order
};

// How the perplexity of the same scores has changed: exp of the mean of their differences, and its
// standard error, which is smaller than those of the two where they rise and fall together. With n
// scores and d their differences, ratio * sqrt((mean of d squared - square of mean d) / (n - 1)).
struct PerplexityChange {
  double ratio = 1.0;
  double ratio_error = 0.0;
  double difference = 0.0;  // of the perplexities
};
// kInvalidArgument where the reports are not of the same number of scores.
Result<PerplexityChange> perplexity_change(const PerplexityReport& base,
                                           const PerplexityReport& changed);

// `forward` with `ids` in the place of the first tokens of every window, as llama-perplexity has
// the token that begins a text there; `forward` itself where there are none. What is predicted
// stays.
WindowForward with_begin_of_text(WindowForward forward, std::span<const std::int32_t> ids);

// Called once per score, in order; `logits` [vocab_size] predict `target`, valid during the call.
using ScoreSink = std::function<Status(std::span<const float> logits, std::int32_t target)>;
// Called after every window; `done` counts from 1.
using WindowDone = std::function<void(std::size_t done, std::size_t total)>;

// The loop under every scoring function, in the calling thread: runs each window through `forward`
// and gives its scores to `sink`. `window_done` may be empty. Targets outside the logits are
// kInvalidArgument; errors of `forward` and `sink` end the loop.
Status run_windows(std::span<const std::int32_t> tokens, std::span<const ScoreWindow> windows,
                   const WindowForward& forward, const ScoreSink& sink,
                   const WindowDone& window_done);

// Called after every window with the statistics of all windows so far.
using PerplexityProgress =
    std::function<void(std::size_t done, std::size_t total, const NllStats& so_far)>;

// Scores a text. `also` sees every score too, and may be empty. Every entry of the logits takes
// part in the softmax, padding rows included, as in llama.cpp and PyTorch.
Result<PerplexityReport> score_perplexity(std::span<const std::int32_t> tokens,
                                          const PerplexityOptions& options,
                                          const WindowForward& forward,
                                          const PerplexityProgress& progress = {},
                                          const ScoreSink& also = {});

// "[3]9.4130," as llama-perplexity prints it after each window, and its last line
// "Final estimate: PPL = 9.4130 +/- 0.21752"; neither ends with a newline.
std::string format_window_ppl(std::size_t window, double ppl);
std::string format_final_ppl(const PerplexityReport& report);
// "Change: PPL(Q)/PPL(base) = 1.01234 +/- 0.00056, PPL(base) = 9.2981", without a newline.
std::string format_ppl_change(const PerplexityReport& base, const PerplexityChange& change);

}  // namespace moepack
