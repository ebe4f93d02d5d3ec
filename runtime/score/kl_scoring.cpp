#include "runtime/score/kl_scoring.h"

#include <algorithm>
#include <vector>

namespace moepack {

Result<PerplexityReport> write_kld_base(const std::filesystem::path& path,
                                        std::span<const std::int32_t> tokens,
                                        const PerplexityOptions& options, std::size_t vocab_size,
                                        const WindowForward& forward,
                                        const PerplexityProgress& progress) {
  if (options.all_positions) {
    return invalid_argument("a base file holds only the second half of each window",
                            "leave out --all-positions");
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<ScoreWindow> windows,
                       plan_windows(tokens.size(), options));
  MOE_ASSIGN_OR_RETURN(
      KldBaseWriter writer,
      KldBaseWriter::create(path, options.context, vocab_size,
                            tokens.first(windows.size() * options.context), options.loop));
  const auto write = [&writer](std::span<const float> logits, std::int32_t) {
    return writer.add(logits);
  };
  MOE_ASSIGN_OR_RETURN(PerplexityReport report,
                       score_perplexity(tokens, options, forward, progress, write));
  MOE_RETURN_IF_ERROR(writer.commit());
  return report;
}

Result<KlReport> score_against_base(KldBaseReader& base, std::size_t max_windows,
                                    const WindowForward& forward, const KlProgress& progress,
                                    const PartLoop& loop) {
  const PerplexityOptions options{.context = base.context(), .max_windows = max_windows};
  MOE_ASSIGN_OR_RETURN(const std::vector<ScoreWindow> windows,
                       plan_windows(base.tokens().size(), options));
  KlAccumulator accumulator(loop);
  std::vector<float> row(base.vocab_size());
  std::size_t next_row = 0;
  const auto compare = [&](std::span<const float> logits, std::int32_t target) -> Status {
    MOE_RETURN_IF_ERROR(base.check_vocab(logits.size()));
    MOE_RETURN_IF_ERROR(base.read_row(next_row++, row, loop));
    return accumulator.add_log_probs(row, logits, target);
  };
  const auto window_done = [&](std::size_t done, std::size_t total) {
    if (progress) progress(done, total, accumulator.summary());
  };
  MOE_RETURN_IF_ERROR(run_windows(base.tokens(), windows, forward, compare, window_done));
  return accumulator.report();
}

Result<KlReport> compare_models(std::span<const std::int32_t> tokens,
                                const PerplexityOptions& options, const WindowForward& base_forward,
                                const WindowForward& forward, const KlProgress& progress) {
  MOE_ASSIGN_OR_RETURN(const std::vector<ScoreWindow> windows,
                       plan_windows(tokens.size(), options));
  KlAccumulator accumulator(options.loop);
  std::vector<float> base_logits;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const std::span<const ScoreWindow> window(&windows[w], 1);
    base_logits.clear();
    const auto keep = [&](std::span<const float> logits, std::int32_t) {
      base_logits.insert(base_logits.end(), logits.begin(), logits.end());
      return Status::ok();
    };
    MOE_RETURN_IF_ERROR(run_windows(tokens, window, base_forward, keep, {}));
    const std::size_t vocab_size = base_logits.size() / windows[w].scores();
    std::size_t score = 0;
    const auto compare = [&](std::span<const float> logits, std::int32_t target) {
      const std::span<const float> base(base_logits.data() + score++ * vocab_size, vocab_size);
      return accumulator.add(base, logits, target);
    };
    MOE_RETURN_IF_ERROR(run_windows(tokens, window, forward, compare, {}));
    if (progress) progress(w + 1, windows.size(), accumulator.summary());
  }
  return accumulator.report();
}

}  // namespace moepack
