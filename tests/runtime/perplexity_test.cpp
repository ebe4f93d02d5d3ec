#include "runtime/score/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/runtime/synthetic_forward.h"
#include "tests/support/status_matchers.h"

namespace moepack::perplexity_test {
namespace {

using test::expect_error;
using test::synthetic_forward;
using test::synthetic_tokens;

TEST(PlanWindows, HalfWindowsAreLlamaPerplexitys) {
  ASSERT_OK_AND_ASSIGN(const auto windows, plan_windows(3 * 512 + 511, {.context = 512}));
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_EQ(windows[2].begin, 1024U);
  EXPECT_EQ(windows[2].first, 256U);
  EXPECT_EQ(windows[2].scores(), 255U);  // positions 256 … 510
  // The last score of a window predicts its last token, never the next window's first.
  EXPECT_EQ(windows[2].begin + windows[2].inputs, 1024U + 511U);
}

TEST(PlanWindows, AllPositionsScoreEveryTokenButTheFirst) {
  ASSERT_OK_AND_ASSIGN(const auto even,
                       plan_windows(8193, {.context = 512, .all_positions = true}));
  EXPECT_EQ(even.size(), 16U);
  ASSERT_OK_AND_ASSIGN(const auto windows, plan_windows(21, {.context = 8, .all_positions = true}));
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_EQ(windows[1].first, 0U);
  EXPECT_EQ(windows[1].inputs, 8U);
  EXPECT_EQ(windows[2].begin, 16U);
  EXPECT_EQ(windows[2].inputs, 4U);
  ASSERT_OK_AND_ASSIGN(const auto shorter,
                       plan_windows(5, {.context = 512, .all_positions = true}));
  ASSERT_EQ(shorter.size(), 1U);
  EXPECT_EQ(shorter[0].inputs, 4U);
}

TEST(PlanWindows, MaxWindowsCutsBothKinds) {
  EXPECT_EQ(plan_windows(100, {.context = 10, .max_windows = 4}).value().size(), 4U);
  EXPECT_EQ(
      plan_windows(100, {.context = 10, .all_positions = true, .max_windows = 4}).value().size(),
      4U);
}

TEST(PlanWindows, RefusesWhatScoresNothing) {
  expect_error(plan_windows(511, {.context = 512}).status(), StatusCode::kInvalidArgument,
               {"511 tokens", "512"});
  expect_error(plan_windows(100, {.context = 2}).status(), StatusCode::kInvalidArgument, {"-c 3"});
  expect_error(plan_windows(1, {.context = 8, .all_positions = true}).status(),
               StatusCode::kInvalidArgument, {"1 tokens"});
  expect_error(plan_windows(100, {.context = 0, .all_positions = true}).status(),
               StatusCode::kInvalidArgument, {"context of 0"});
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(plan_windows(100, {.context = kHuge, .all_positions = true}).value().size(), 1U);
}

struct Expected {
  PerplexityOptions options;
  std::size_t scores;
  double ppl, error, mean_nll;
};

// Computed in Python with math.fsum from the same hash.
TEST(Perplexity, AgreesWithAnIndependentProgram) {
  const Expected cases[] = {
      {{.context = 8}, 15, 86.73860587165576, 60.41128582551223, 4.462899065781581},
      {{.context = 7}, 18, 45.18772634628026, 26.7877930341716, 3.810825508952751},
      {{.context = 8, .max_windows = 2},
       6,
       79.40135733629505,
       92.21595538021774,
       4.3745154630225285},
      {{.context = 8, .all_positions = true},
       44,
       58.11233701550506,
       21.460871118707587,
       4.062377982375301},
  };
  const auto tokens = synthetic_tokens();
  for (const Expected& expected : cases) {
    ASSERT_OK_AND_ASSIGN(const PerplexityReport report,
                         score_perplexity(tokens, expected.options, synthetic_forward(1)));
    EXPECT_EQ(report.tokens_scored, expected.scores);
    EXPECT_NEAR(report.ppl, expected.ppl, 1e-11 * expected.ppl);
    EXPECT_NEAR(report.ppl_error, expected.error, 1e-10 * expected.error);
    EXPECT_NEAR(report.mean_nll, expected.mean_nll, 1e-12);
  }
}

// What llama-perplexity does where the model wants a token before texts.
TEST(Perplexity, EveryWindowBeginsAsTextsDo) {
  const auto tokens = synthetic_tokens();
  const std::vector<std::int32_t> begin = {1, 2};
  std::vector<std::vector<std::int32_t>> windows;
  const WindowForward forward = synthetic_forward(1);
  const WindowForward seen = [&](std::span<const std::int32_t> window, std::size_t first,
                                 const LogitsSink& sink) {
    windows.emplace_back(window.begin(), window.end());
    return forward(window, first, sink);
  };
  std::vector<std::int32_t> targets;
  ASSERT_OK(score_perplexity(tokens, {.context = 8}, with_begin_of_text(seen, begin), {},
                             [&](std::span<const float>, std::int32_t target) {
                               targets.push_back(target);
                               return Status::ok();
                             }));
  ASSERT_EQ(windows.size(), 5U);
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const auto given = std::span(tokens).subspan(w * 8, 7);
    std::vector<std::int32_t> expected(given.begin(), given.end());
    std::copy(begin.begin(), begin.end(), expected.begin());
    EXPECT_EQ(windows[w], expected) << w;
    EXPECT_EQ(targets[w * 3], tokens[w * 8 + 5]) << w;
  }
  windows.clear();
  ASSERT_OK(score_perplexity(tokens, {.context = 8}, with_begin_of_text(seen, {})));
  EXPECT_EQ(windows[1], std::vector<std::int32_t>(tokens.begin() + 8, tokens.begin() + 15));
}

TEST(Perplexity, ReportsEveryWindowAndEveryScore) {
  std::vector<double> running;
  std::vector<std::int32_t> targets;
  const auto tokens = synthetic_tokens();
  ASSERT_OK_AND_ASSIGN(const PerplexityReport report,
                       score_perplexity(
                           tokens, {.context = 8}, synthetic_forward(1),
                           [&](std::size_t done, std::size_t total, const NllStats& so_far) {
                             EXPECT_EQ(done, running.size() + 1);
                             EXPECT_EQ(total, 5U);
                             running.push_back(so_far.perplexity());
                           },
                           [&](std::span<const float> logits, std::int32_t target) {
                             EXPECT_EQ(logits.size(), test::kSyntheticVocab);
                             targets.push_back(target);
                             return Status::ok();
                           }));
  ASSERT_EQ(running.size(), 5U);
  EXPECT_NEAR(running[0], 21.555716144564464, 1e-10);
  EXPECT_NEAR(running[1], 79.40135733629505, 1e-10);
  EXPECT_EQ(running[4], report.ppl);
  ASSERT_EQ(targets.size(), 15U);
  EXPECT_EQ(targets[0], tokens[5]);
  EXPECT_EQ(targets[3], tokens[8 + 5]);
}

TEST(Perplexity, IsTheVocabularyForUniformLogits) {
  const WindowForward flat = [](std::span<const std::int32_t> tokens, std::size_t first,
                                const LogitsSink& sink) {
    const std::vector<float> logits(50, -700.0F);  // exp underflows without the maximum
    for (std::size_t i = first; i < tokens.size(); ++i) {
      MOE_RETURN_IF_ERROR(sink(i, logits));
    }
    return Status::ok();
  };
  ASSERT_OK_AND_ASSIGN(const PerplexityReport report,
                       score_perplexity(synthetic_tokens(), {.context = 8}, flat));
  EXPECT_NEAR(report.ppl, 50.0, 1e-10);
  EXPECT_NEAR(report.ppl_error, 0.0, 1e-4);
}

TEST(Perplexity, RefusesTokensOfAnotherVocabulary) {
  auto tokens = synthetic_tokens();
  tokens[7] = 11;
  expect_error(score_perplexity(tokens, {.context = 8}, synthetic_forward(1)).status(),
               StatusCode::kInvalidArgument, {"token id 11", "11 logits", "tokenizer"});
  tokens[7] = -1;
  expect_error(score_perplexity(tokens, {.context = 8}, synthetic_forward(1)).status(),
               StatusCode::kInvalidArgument, {"token id -1"});
}

TEST(Perplexity, RefusesLogitsThatAreNoNumbers) {
  const WindowForward broken = [](std::span<const std::int32_t> tokens, std::size_t first,
                                  const LogitsSink& sink) {
    auto logits = test::synthetic_logits(1, first, tokens[first]);
    logits[3] = std::numeric_limits<float>::quiet_NaN();
    return sink(first, logits);
  };
  expect_error(score_perplexity(synthetic_tokens(), {.context = 8}, broken).status(),
               StatusCode::kCorrupt, {"token 3", "not a number"});
}

TEST(Perplexity, NoticesAForwardThatLeavesLogitsOutOrSwapsThem) {
  const WindowForward shorter = [](std::span<const std::int32_t> tokens, std::size_t first,
                                   const LogitsSink& sink) {
    return sink(first, test::synthetic_logits(1, first, tokens[first]));
  };
  expect_error(score_perplexity(synthetic_tokens(), {.context = 8}, shorter).status(),
               StatusCode::kInvalidArgument, {"left out"});
  const WindowForward late = [](std::span<const std::int32_t> tokens, std::size_t first,
                                const LogitsSink& sink) {
    return sink(first + 1, test::synthetic_logits(1, first, tokens[first]));
  };
  expect_error(score_perplexity(synthetic_tokens(), {.context = 8}, late).status(),
               StatusCode::kInvalidArgument, {"out of order"});
}

TEST(Perplexity, PassesOnErrorsOfTheForward) {
  const WindowForward failing = [](auto, auto, auto) { return invalid_argument("no such layer"); };
  expect_error(score_perplexity(synthetic_tokens(), {.context = 8}, failing).status(),
               StatusCode::kInvalidArgument, {"no such layer"});
}

// By hand: differences .1, .1 and .4 have the mean .2 and the variance .02, over 2 scores' freedom.
TEST(Perplexity, AChangeIsThatOfTheSameScores) {
  PerplexityReport base{.ppl = 2.0, .nlls = {1.0, 5.0, 0.5}};
  PerplexityReport changed{.ppl = 2.5, .nlls = {1.1, 5.1, 0.9}};
  ASSERT_OK_AND_ASSIGN(const PerplexityChange change, perplexity_change(base, changed));
  EXPECT_NEAR(change.ratio, std::exp(0.2), 1e-12);
  EXPECT_NEAR(change.ratio_error, std::exp(0.2) * std::sqrt(0.02 / 2), 1e-12);
  EXPECT_DOUBLE_EQ(change.difference, 0.5);
  EXPECT_EQ(format_ppl_change(base, change),
            "Change: PPL(Q)/PPL(base) = 1.22140 +/- 0.12214, PPL(base) = 2.0000");
  changed.nlls.pop_back();
  expect_error(perplexity_change(base, changed).status(), StatusCode::kInvalidArgument,
               {"3 and 2 scores"});
}

TEST(NllStats, FewScoresHaveNoError) {
  NllStats stats;
  EXPECT_EQ(stats.mean(), 0.0);
  EXPECT_EQ(stats.perplexity_error(), 0.0);
  stats.add(2.0);
  EXPECT_EQ(stats.perplexity(), std::exp(2.0));
  EXPECT_EQ(stats.perplexity_error(), 0.0);
  stats.add(4.0);  // mean 3, variance 1, one degree of freedom
  EXPECT_NEAR(stats.perplexity_error(), std::exp(3.0), 1e-12);
}

TEST(FormatPpl, IsLlamaPerplexitys) {
  EXPECT_EQ(format_window_ppl(1, 23.14812) + format_window_ppl(2, 13.48579),
            "[1]23.1481,[2]13.4858,");
  EXPECT_EQ(format_final_ppl({.ppl = 9.40601, .ppl_error = 0.217297}),
            "Final estimate: PPL = 9.4060 +/- 0.21730");
}

}  // namespace
}  // namespace moepack::perplexity_test
