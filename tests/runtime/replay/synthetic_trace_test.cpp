#include "runtime/replay/synthetic_trace.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "tests/support/status_matchers.h"

namespace moepack::synthetic_trace_test {
namespace {

struct Statistics {
  double hottest_quarter = 0;  // share of the uses of the 24 % most used experts
  double overlap = 0;          // share of a token's experts that the last token used too
};

Statistics statistics_of(const SyntheticTrace& spec) {
  const auto source = make_synthetic_trace(spec);
  std::vector<std::uint64_t> counts(spec.experts);
  std::set<std::uint32_t> last;
  double shared = 0;
  double uses = 0;
  while (const TracePass* pass = source->next().value()) {
    std::set<std::uint32_t> now;
    for (const TraceUse& use : pass->layers[0].uses) now.insert(use.expert);
    EXPECT_EQ(now.size(), spec.experts_per_token);
    for (const std::uint32_t e : now) {
      ++counts[e];
      ++uses;
      shared += last.contains(e) ? 1 : 0;
    }
    last = now;
  }
  std::sort(counts.begin(), counts.end(), std::greater<>());
  double hot = 0;
  for (std::size_t i = 0; i < spec.experts * 24 / 100; ++i) hot += static_cast<double>(counts[i]);
  return {hot / uses, shared / uses};
}

// What flash-moe's authors measured on the 35B: 24 % of the experts have 80 % of the uses, and a
// token shares 25 % of its experts with the one before.
TEST(SyntheticTrace, APresetHasTheMeasuredStatistics) {
  for (const char* name : {"35b-a3b", "397b-a17b"}) {
    ASSERT_OK_AND_ASSIGN(SyntheticTrace spec, parse_synthetic_trace(name));
    spec.layers = 1;
    spec.tokens = 4000;
    const Statistics statistics = statistics_of(spec);
    EXPECT_NEAR(statistics.hottest_quarter, 0.8, 0.02) << name;
    EXPECT_NEAR(statistics.overlap, 0.25, 0.04) << name;
  }
}

TEST(SyntheticTrace, LocalityAndSkewAreWhatTheyAreGiven) {
  ASSERT_OK_AND_ASSIGN(const SyntheticTrace even,
                       parse_synthetic_trace("layers=1,zipf=0,tokens=4000"));
  EXPECT_NEAR(statistics_of(even).hottest_quarter, 0.24, 0.05);
  EXPECT_NEAR(statistics_of(even).overlap, 8.0 / 256, 0.01);
  ASSERT_OK_AND_ASSIGN(const SyntheticTrace local,
                       parse_synthetic_trace("layers=1,zipf=0,locality=0.5,tokens=4000"));
  EXPECT_GT(statistics_of(local).overlap, 0.4);
  // Drift evens the counts out.
  ASSERT_OK_AND_ASSIGN(const SyntheticTrace drifting,
                       parse_synthetic_trace("35b-a3b,layers=1,drift=50,tokens=4000"));
  EXPECT_LT(statistics_of(drifting).hottest_quarter, 0.6);
}

TEST(SyntheticTrace, TheSameNumbersMakeTheSamePasses) {
  ASSERT_OK_AND_ASSIGN(const SyntheticTrace spec,
                       parse_synthetic_trace("layers=3,experts=20,k=20,zipf=9,tokens=20,drift=9"));
  const auto one = make_synthetic_trace(spec);
  const auto two = make_synthetic_trace(spec);
  std::vector<TracePass> passes;
  for (const TracePass* pass = one->next().value(); pass; pass = one->next().value()) {
    passes.push_back(*pass);
    ASSERT_EQ(*two->next().value(), *pass);
  }
  ASSERT_EQ(passes.size(), 20U);
  ASSERT_OK(one->rewind());
  for (const TracePass& pass : passes) ASSERT_EQ(*one->next().value(), pass);
  EXPECT_EQ(one->next().value(), nullptr);
}

TEST(SyntheticTrace, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"30b", "layers=0", "zipf=-1", "layers=3,35b-a3b", "k=300", "tokens=",
                           "layers=1000,experts=1000", "locality=1", "seed=1x", "record-kib=0"}) {
    const auto spec = parse_synthetic_trace(text);
    ASSERT_FALSE(spec.is_ok()) << text;
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
  }
  ASSERT_OK_AND_ASSIGN(const SyntheticTrace spec, parse_synthetic_trace("record-kib=3,seed=9"));
  EXPECT_EQ(spec.record_bytes, 3072U);
  EXPECT_EQ(spec.seed, 9U);
}

}  // namespace
}  // namespace moepack::synthetic_trace_test
