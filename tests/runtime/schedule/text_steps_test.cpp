// What the counters are told of a step.
#include "runtime/schedule/text_steps.h"

#include <gtest/gtest.h>

namespace moepack::text_steps_test {
namespace {

TEST(TextSteps, AForwardsTimeBelongsToItsRows) {
  SchedulerStats stats;
  count_forward(1, 0, 0.5, stats);
  EXPECT_EQ(stats.decode_seconds, 0.5);
  EXPECT_EQ(stats.prompt_seconds, 0);
  count_forward(0, 64, 2, stats);
  EXPECT_EQ(stats.decode_seconds, 0.5);
  EXPECT_EQ(stats.prompt_seconds, 2);
  EXPECT_EQ(stats.decode_steps, 1U);
  // Three rows of four are a prompt's.
  count_forward(2, 6, 4, stats);
  EXPECT_EQ(stats.decode_seconds, 1.5);
  EXPECT_EQ(stats.prompt_seconds, 5);
  EXPECT_EQ(stats.decode_tokens, 3U);
  EXPECT_EQ(stats.prompt_tokens, 70U);
  EXPECT_EQ(stats.decode_steps, 2U);
  count_forward(0, 0, 1, stats);
  EXPECT_EQ(stats.decode_seconds, 1.5);
}

}  // namespace
}  // namespace moepack::text_steps_test
