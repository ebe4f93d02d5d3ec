#include "runtime/score/kl_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/score/kl_format.h"
#include "runtime/score/kl_scoring.h"
#include "tests/runtime/synthetic_forward.h"
#include "tests/support/status_matchers.h"

namespace moepack::kl_stats_test {
namespace {

using test::expect_error;
using test::synthetic_forward;
using test::synthetic_tokens;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> logs(std::initializer_list<double> probabilities, float shift = 0.0F) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)) + shift);
  return out;
}

void expect_estimate(const Estimate& got, double value, double error) {
  EXPECT_NEAR(got.value, value, 1e-11 * std::max(1.0, std::abs(value)));
  EXPECT_NEAR(got.error, error, 1e-10 * std::max(1.0, std::abs(error)));
}

// Computed in Python with math.fsum from the same hash (salt 1: base, salt 2: Q).
TEST(CompareModels, AgreesWithAnIndependentProgram) {
  std::size_t windows = 0;
  ASSERT_OK_AND_ASSIGN(
      const KlReport report,
      compare_models(synthetic_tokens(), {.context = 8}, synthetic_forward(1), synthetic_forward(2),
                     [&](std::size_t done, std::size_t total, const KlSummary& s) {
                       EXPECT_EQ(done, ++windows);
                       EXPECT_EQ(total, 5U);
                       EXPECT_EQ(s.tokens_scored, 3 * done);
                     }));
  const KlSummary& s = report.summary;
  EXPECT_EQ(windows, 5U);
  EXPECT_EQ(s.tokens_scored, 15U);
  expect_estimate(s.ppl, 52.62970304956751, 31.972718277869557);
  expect_estimate(s.ppl_base, 86.73860587165576, 60.41128582551223);
  EXPECT_NEAR(s.correlation, 0.010612983527338006, 1e-12);
  expect_estimate(s.ln_ppl_ratio, -0.4996184086592952, 0.9193242036012841);
  expect_estimate(s.ppl_ratio, 0.6067621507249257, 0.5578111309905945);
  expect_estimate(s.ppl_difference, -34.108902822088254, 68.04983422012447);
  expect_estimate(s.kld, 3.0269531289304834, 0.3831722236320387);
  expect_estimate(s.dp, -0.020768207019600457, 0.054593171416476384);
  expect_estimate(s.rms_dp, 0.2053219899015491, 0.052783354957919484);
  expect_estimate(s.same_top, 2.0 / 15.0, 0.0908513525158996);
  const std::vector<double> kld = {5.108735502817844,  5.108735502817844,  5.108735502817844,
                                   5.108735502817844,  5.044850554422334,  2.864949787764516,
                                   1.2456759045448567, 1.0767622373540413, 0.9487704487875369,
                                   0.9199722963600735, 0.9167725016459108};
  const std::vector<double> dp = {0.19040830307899417,  0.19015762642261025,   0.18790153651515484,
                                  0.1778744702597976,   0.1725028276229991,    0.12053003038273374,
                                  0.005459502117754893, -0.053334917210943064, -0.3019466274874949,
                                  -0.470636276651405,   -0.5235405606613642,   -0.535444024563605,
                                  -0.536766631663854};
  for (std::size_t i = 0; i < kld.size(); ++i) EXPECT_NEAR(report.kld[i], kld[i], 1e-11) << i;
  for (std::size_t i = 0; i < dp.size(); ++i) EXPECT_NEAR(report.dp[i], dp[i], 1e-12) << i;
}

TEST(CompareModels, AModelEqualsItself) {
  for (const bool all_positions : {false, true}) {
    ASSERT_OK_AND_ASSIGN(
        const KlReport report,
        compare_models(synthetic_tokens(), {.context = 8, .all_positions = all_positions},
                       synthetic_forward(1), synthetic_forward(1)));
    EXPECT_EQ(report.summary.tokens_scored, all_positions ? 44U : 15U);
    EXPECT_EQ(report.summary.kld.value, 0.0);
    EXPECT_EQ(report.summary.same_top.value, 1.0);
    EXPECT_EQ(report.summary.ppl.value, report.summary.ppl_base.value);
    EXPECT_NEAR(report.summary.correlation, 1.0, 1e-12);
    // The covariance cancels both variances; rounding must not make it the root of a negative.
    EXPECT_NEAR(report.summary.ln_ppl_ratio.error, 0.0, 1e-6);
    for (const NamedNumber& number : kl_report_numbers(report)) {
      EXPECT_TRUE(std::isfinite(number.value)) << number.key;
    }
  }
}

// The variance of a difference, from the covariance, may be rounded to just below zero: here the
// losses differ by nothing but rounding.
TEST(KlAccumulator, NearlyEqualModelsHaveFiniteErrors) {
  for (std::uint32_t salt = 0; salt < 20; ++salt) {
    KlAccumulator accumulator;
    for (std::uint32_t i = 0; i < 20; ++i) {
      const auto base = test::synthetic_logits(salt, i, 3);
      auto q = base;
      for (float& x : q) x += 8.0F;
      ASSERT_OK(accumulator.add(base, q, static_cast<std::int32_t>(i % 11)));
    }
    const KlSummary s = accumulator.summary();
    EXPECT_NEAR(s.ln_ppl_ratio.error, 0.0, 1e-6);
    EXPECT_NEAR(s.ppl_difference.error, 0.0, 1e-3);
  }
}

TEST(KlAccumulator, TenScoresAreTooFewForAnError) {
  KlAccumulator accumulator;
  for (std::uint32_t i = 0; i < 10; ++i) {
    ASSERT_OK(accumulator.add(test::synthetic_logits(1, i, 3), test::synthetic_logits(2, i, 3), 1));
  }
  EXPECT_EQ(accumulator.summary().kld.error, 0.0);
  EXPECT_EQ(accumulator.summary().ppl.error, 0.0);
  ASSERT_OK(accumulator.add(test::synthetic_logits(1, 10, 3), test::synthetic_logits(2, 10, 3), 1));
  EXPECT_GT(accumulator.summary().kld.error, 0.0);
  EXPECT_GT(accumulator.summary().ppl.error, 0.0);
}

TEST(KlAccumulator, OneScoreByHand) {
  KlAccumulator accumulator;
  // The shifts cancel: only probabilities count.
  ASSERT_OK(accumulator.add(logs({0.5, 0.25, 0.25}, 3.0F), logs({0.25, 0.5, 0.25}, -40.0F), 1));
  const KlSummary s = accumulator.summary();
  EXPECT_NEAR(s.kld.value, 0.25 * std::log(2.0), 1e-5);
  EXPECT_NEAR(s.ppl.value, 2.0, 1e-5);
  EXPECT_NEAR(s.ppl_base.value, 4.0, 1e-5);
  EXPECT_NEAR(s.dp.value, 0.25, 1e-5);
  EXPECT_NEAR(s.rms_dp.value, 0.25, 1e-5);
  EXPECT_EQ(s.same_top.value, 0.0);
  EXPECT_EQ(s.kld.error, 0.0);
  EXPECT_EQ(s.correlation, 0.0);
  EXPECT_EQ(accumulator.report().kld[0], s.kld.value);
}

TEST(KlAccumulator, ProbabilityZero) {
  KlAccumulator accumulator;
  // Zero in the base adds nothing, also where Q has zero too.
  ASSERT_OK(accumulator.add(std::vector<float>{0, 0, -kInfinity, -kInfinity},
                            std::vector<float>{0, 0, 0, -kInfinity}, 0));
  EXPECT_NEAR(accumulator.summary().kld.value, std::log(1.5), 1e-12);
  // Zero in Q where the base has something: infinite by definition, never NaN.
  ASSERT_OK(accumulator.add(std::vector<float>{0, 0}, std::vector<float>{0, -kInfinity}, 0));
  EXPECT_EQ(accumulator.summary().kld.value, kInfinity);
  EXPECT_EQ(accumulator.report().kld[0], kInfinity);
  EXPECT_NEAR(accumulator.report().kld[10], std::log(1.5), 1e-12);
}

TEST(KlAccumulator, SmallDivergencesAreNotLostInFloat) {
  // Q's logits differ by one float step of a large logit: the divergence is about 1e-12.
  const std::vector<float> base = {20.0F, 19.0F};
  const std::vector<float> q = {std::nextafter(20.0F, 30.0F), 19.0F};
  const double delta = double{q[0]} - 20.0;
  const double p = 1.0 / (1.0 + std::exp(-1.0));
  KlAccumulator accumulator;
  ASSERT_OK(accumulator.add(base, q, 0));
  EXPECT_NEAR(accumulator.summary().kld.value, 0.5 * p * (1 - p) * delta * delta, 1e-14);
}

TEST(KlAccumulator, TiesOfTheTopGoToTheLowestId) {
  KlAccumulator accumulator;
  ASSERT_OK(accumulator.add(std::vector<float>{1, 2, 2}, std::vector<float>{0, 5, 5}, 0));
  ASSERT_OK(accumulator.add_log_probs(logs({0.2, 0.4, 0.4}), std::vector<float>{0, 5, 5}, 0));
  EXPECT_EQ(accumulator.summary().same_top.value, 1.0);
  ASSERT_OK(accumulator.add(std::vector<float>{1, 2, 2}, std::vector<float>{0, 5, 6}, 0));
  EXPECT_NEAR(accumulator.summary().same_top.value, 2.0 / 3.0, 1e-15);
}

TEST(KlAccumulator, BaseFileFloorLeavesOutWhatTheFileClipped) {
  // Token 2 lies at the floor of a base file; Q gives it nothing, which must not count.
  const std::vector<float> base = {std::log(0.5F), std::log(0.5F), -16.5F};
  KlAccumulator accumulator;
  ASSERT_OK(accumulator.add_log_probs(base, std::vector<float>{0, 0, -kInfinity}, 0));
  EXPECT_NEAR(accumulator.summary().kld.value, 0.0, 1e-7);
}

TEST(KlAccumulator, BothWaysAgreeAboveTheFloor) {
  KlAccumulator exact;
  KlAccumulator through_log_probs;
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto base = test::synthetic_logits(1, i, 3);
    const auto q = test::synthetic_logits(2, i, 3);
    double sum = 0.0;
    for (const float x : base) sum += std::exp(double{x});
    std::vector<float> log_probs;
    for (const float x : base) {
      log_probs.push_back(static_cast<float>(double{x} - std::log(sum)));
    }
    ASSERT_OK(exact.add(base, q, static_cast<std::int32_t>(i % 11)));
    ASSERT_OK(through_log_probs.add_log_probs(log_probs, q, static_cast<std::int32_t>(i % 11)));
  }
  const auto a = kl_report_numbers(exact.report());
  const auto b = kl_report_numbers(through_log_probs.report());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].value, b[i].value, 1e-5 * std::max(1.0, std::abs(a[i].value))) << a[i].key;
  }
}

TEST(KlAccumulator, RefusesWhatCannotBeCompared) {
  KlAccumulator accumulator;
  const std::vector<float> two = {0, 0};
  const std::vector<float> three = {0, 0, 0};
  expect_error(accumulator.add(two, three, 0), StatusCode::kInvalidArgument, {"2", "3"});
  expect_error(accumulator.add_log_probs(three, two, 0), StatusCode::kInvalidArgument, {"3", "2"});
  expect_error(accumulator.add(two, two, 2), StatusCode::kInvalidArgument, {"token id 2"});
  expect_error(accumulator.add(two, two, -1), StatusCode::kInvalidArgument, {"token id -1"});
  expect_error(accumulator.add(two, std::vector<float>{0, NAN}, 0), StatusCode::kCorrupt,
               {"token 1"});
  expect_error(accumulator.add(std::vector<float>{NAN, 0}, two, 0), StatusCode::kCorrupt,
               {"token 0"});
  EXPECT_EQ(accumulator.count(), 0U);
  EXPECT_EQ(accumulator.report().summary.ppl.value, 0.0);
}

TEST(Percentile, InterpolatesBetweenRanks) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_EQ(percentile(values, 0.0), 1.0);
  EXPECT_EQ(percentile(values, 1.0), 8.0);
  EXPECT_EQ(percentile(values, 0.5), 3.0);
  EXPECT_NEAR(percentile(values, 0.9), 6.8, 1e-12);
  EXPECT_EQ(percentile(std::vector<double>{5}, 0.5), 5.0);
}

// The layout of llama-perplexity's own output for these numbers.
TEST(FormatKl, HasLlamaPerplexitysLabelsAndColumns) {
  KlReport report;
  KlSummary& s = report.summary;
  s.tokens_scored = 14025;
  s.ppl = {9.412995, 0.217522};
  s.ppl_base = {9.265232, 0.213542};
  s.correlation = 0.9948;
  s.ln_ppl_ratio = {0.015822, 0.002360};
  s.ppl_ratio = {1.015948, 0.002397};
  s.ppl_difference = {0.147762, 0.022387};
  s.kld = {0.030614, 0.000527};
  s.dp = {-0.00290, 0.00039};
  s.rms_dp = {0.04615, 0.00078};
  s.same_top = {0.91508, 0.00235};
  report.kld = {2.772158, 0.659435, 0.246386, 0.112857,  0.072881, 0.014551,
                0.000212, 0.000039, 0.000002, -0.000002, -0.000005};
  report.dp = {0.39179,  0.27090,  0.13690,  0.05916,  0.02930,  0.00383, -0.00003,
               -0.00696, -0.03870, -0.07292, -0.16632, -0.29487, -0.52312};
  EXPECT_EQ(
      format_kl_window_head(),
      "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence        "
      "      Δp RMS            Same top p");
  EXPECT_EQ(
      format_kl_window(55, s),
      "  55       9.4130 ±    0.2175       0.01582 ±    0.00236       0.03061 ±    0.00053    "
      " 4.615 ±  0.078 %    91.508 ±  0.235 %");
  EXPECT_EQ(format_kl_report(report),
            R"(====== Perplexity statistics ======
Mean PPL(Q)                   :   9.412995 ±   0.217522
Mean PPL(base)                :   9.265232 ±   0.213542
Cor(ln(PPL(Q)), ln(PPL(base))):  99.48%
Mean ln(PPL(Q)/PPL(base))     :   0.015822 ±   0.002360
Mean PPL(Q)/PPL(base)         :   1.015948 ±   0.002397
Mean PPL(Q)-PPL(base)         :   0.147762 ±   0.022387

====== KL divergence statistics ======
Mean    KLD:   0.030614 ±   0.000527
Maximum KLD:   2.772158
99.9%   KLD:   0.659435
99.0%   KLD:   0.246386
95.0%   KLD:   0.112857
90.0%   KLD:   0.072881
Median  KLD:   0.014551
10.0%   KLD:   0.000212
 5.0%   KLD:   0.000039
 1.0%   KLD:   0.000002
 0.1%   KLD:  -0.000002
Minimum KLD:  -0.000005

====== Token probability statistics ======
Mean    Δp: -0.290 ± 0.039 %
Maximum Δp: 39.179%
99.9%   Δp: 27.090%
99.0%   Δp: 13.690%
95.0%   Δp:  5.916%
90.0%   Δp:  2.930%
75.0%   Δp:  0.383%
Median  Δp: -0.003%
25.0%   Δp: -0.696%
10.0%   Δp: -3.870%
 5.0%   Δp: -7.292%
 1.0%   Δp: -16.632%
 0.1%   Δp: -29.487%
Minimum Δp: -52.312%
RMS Δp    :  4.615 ± 0.078 %
Same top p: 91.508 ± 0.235 %
)");
}

TEST(KlReportNumbers, HaveTheDocumentedKeys) {
  const auto numbers = kl_report_numbers(KlReport{});
  std::vector<std::string> keys;
  for (const NamedNumber& number : numbers) keys.push_back(number.key);
  for (const char* key :
       {"ppl", "ppl_error", "tokens_scored", "ppl_base", "mean_kld", "mean_kld_error", "kld_max",
        "kld_median", "kld_p99_9", "kld_min", "mean_dp", "rms_dp", "same_top", "same_top_error"}) {
    EXPECT_EQ(std::count(keys.begin(), keys.end(), key), 1) << key;
  }
}

}  // namespace
}  // namespace moepack::kl_stats_test
