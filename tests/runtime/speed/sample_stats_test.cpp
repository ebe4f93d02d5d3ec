// Mean and deviation against what llama-bench printed for the same samples.
#include "runtime/speed/sample_stats.h"

#include <gtest/gtest.h>
#include <array>

namespace moepack::sample_stats_test {
namespace {

TEST(SampleStats, AgreeWithLlamaBench) {
  const std::array<double, 2> two_ns{2222615374, 94312755};
  EXPECT_NEAR(sample_mean(two_ns), 1158464064, 1);
  EXPECT_NEAR(sample_deviation(two_ns), 1504937215, 1);
  const std::array<double, 2> two_ts{14.3975, 339.297};
  EXPECT_NEAR(sample_mean(two_ts), 176.847042, 5e-4);
  EXPECT_NEAR(sample_deviation(two_ts), 229.738412, 5e-4);
}

TEST(SampleStats, DivideByOneLessThanTheSamples) {
  const std::array<double, 4> four{1, 2, 3, 6};
  EXPECT_DOUBLE_EQ(sample_mean(four), 3);
  EXPECT_DOUBLE_EQ(sample_deviation(four) * sample_deviation(four), 14.0 / 3);
}

TEST(SampleStats, FewSamplesHaveNoDeviation) {
  const std::array<double, 1> one{7};
  EXPECT_EQ(sample_mean(one), 7);
  EXPECT_EQ(sample_deviation(one), 0);
  EXPECT_EQ(sample_mean({}), 0);
  EXPECT_EQ(sample_deviation({}), 0);
}

}  // namespace
}  // namespace moepack::sample_stats_test
