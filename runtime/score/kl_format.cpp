#include "runtime/score/kl_format.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace moepack {
namespace {

__attribute__((format(printf, 2, 3))) void append(std::string& text, const char* format, ...) {
  char line[256];
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0) text.append(line, std::min(static_cast<std::size_t>(length), sizeof line - 1));
}

void append_estimate(std::string& text, const char* label, const Estimate& estimate) {
  append(text, "%s: %10.6f ± %10.6f\n", label, estimate.value, estimate.error);
}

void append_percent(std::string& text, const char* label, const Estimate& fraction) {
  append(text, "%s: %6.3f ± %5.3f %%\n", label, 100.0 * fraction.value, 100.0 * fraction.error);
}

}  // namespace

std::string format_kl_window_head() {
  return "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence"
         "              Δp RMS            Same top p";
}

std::string format_kl_window(std::size_t window, const KlSummary& so_far) {
  std::string text;
  append(text, "%4zu", window);
  append(text, "    %9.4f ± %9.4f", so_far.ppl.value, so_far.ppl.error);
  append(text, "    %10.5f ± %10.5f", so_far.ln_ppl_ratio.value, so_far.ln_ppl_ratio.error);
  append(text, "    %10.5f ± %10.5f", so_far.kld.value, so_far.kld.error);
  append(text, "    %6.3f ± %6.3f %%", 100.0 * so_far.rms_dp.value, 100.0 * so_far.rms_dp.error);
  append(text, "    %6.3f ± %6.3f %%", 100.0 * so_far.same_top.value,
         100.0 * so_far.same_top.error);
  return text;
}

std::string format_kl_report(const KlReport& report) {
  const KlSummary& s = report.summary;
  std::string text = "====== Perplexity statistics ======\n";
  append_estimate(text, "Mean PPL(Q)                   ", s.ppl);
  append_estimate(text, "Mean PPL(base)                ", s.ppl_base);
  append(text, "Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n", 100.0 * s.correlation);
  append_estimate(text, "Mean ln(PPL(Q)/PPL(base))     ", s.ln_ppl_ratio);
  append_estimate(text, "Mean PPL(Q)/PPL(base)         ", s.ppl_ratio);
  append_estimate(text, "Mean PPL(Q)-PPL(base)         ", s.ppl_difference);

  text += "\n====== KL divergence statistics ======\n";
  append_estimate(text, "Mean    KLD", s.kld);
  for (std::size_t i = 0; i < kKldPercentiles.size(); ++i) {
    append(text, "%s KLD: %10.6f\n", kKldPercentiles[i].label, report.kld[i]);
  }

  text += "\n====== Token probability statistics ======\n";
  append_percent(text, "Mean    Δp", s.dp);
  for (std::size_t i = 0; i < kDpPercentiles.size(); ++i) {
    append(text, "%s Δp: %6.3f%%\n", kDpPercentiles[i].label, 100.0 * report.dp[i]);
  }
  append_percent(text, "RMS Δp    ", s.rms_dp);
  append_percent(text, "Same top p", s.same_top);
  return text;
}

std::vector<NamedNumber> kl_report_numbers(const KlReport& report) {
  const KlSummary& s = report.summary;
  std::vector<NamedNumber> numbers;
  const auto put = [&numbers](const std::string& key, const Estimate& estimate) {
    numbers.push_back({key, estimate.value});
    numbers.push_back({key + "_error", estimate.error});
  };
  put("ppl", s.ppl);
  numbers.push_back({"tokens_scored", static_cast<double>(s.tokens_scored)});
  put("ppl_base", s.ppl_base);
  numbers.push_back({"ln_ppl_correlation", s.correlation});
  put("ln_ppl_ratio", s.ln_ppl_ratio);
  put("ppl_ratio", s.ppl_ratio);
  put("ppl_difference", s.ppl_difference);
  put("mean_kld", s.kld);
  for (std::size_t i = 0; i < kKldPercentiles.size(); ++i) {
    numbers.push_back({std::string("kld_") + kKldPercentiles[i].key, report.kld[i]});
  }
  put("mean_dp", s.dp);
  for (std::size_t i = 0; i < kDpPercentiles.size(); ++i) {
    numbers.push_back({std::string("dp_") + kDpPercentiles[i].key, report.dp[i]});
  }
  put("rms_dp", s.rms_dp);
  put("same_top", s.same_top);
  return numbers;
}

}  // namespace moepack
