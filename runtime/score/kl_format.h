// KL statistics as text, in llama-perplexity's layout, and as named numbers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/score/kl_stats.h"

namespace moepack {

// The head line and the line per window that llama-perplexity prints while it runs, without their
// newline.
std::string format_kl_window_head();
std::string format_kl_window(std::size_t window, const KlSummary& so_far);
// The three blocks that llama-perplexity prints at its end ("====== Perplexity statistics ======"
// and so on), every line with its newline.
std::string format_kl_report(const KlReport& report);

// The report as (key, value) for machines: ppl, ppl_error, tokens_scored, ppl_base, mean_kld,
// mean_kld_error, kld_max … kld_min, mean_dp, dp_max … dp_min, rms_dp, same_top and so on.
struct NamedNumber {
  std::string key;
  double value;
};
std::vector<NamedNumber> kl_report_numbers(const KlReport& report);

}  // namespace moepack
