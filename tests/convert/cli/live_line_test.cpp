#include "convert/cli/live_line.h"

#include <gtest/gtest.h>

namespace moepack::cli::live_line_test {
namespace {

LiveReading reading(std::uint64_t hits, std::uint64_t misses, std::uint64_t bytes, int seconds) {
  LiveReading r;
  r.experts.hits = hits;
  r.experts.misses = misses;
  r.experts.bytes_read = bytes;
  r.when = Clock::time_point{} + std::chrono::seconds(seconds);
  return r;
}

// 320 uses of 32 a token in two seconds are 5 tokens a second; 3 GB in two seconds 1.5 a second.
TEST(LiveText, IsWhatHappenedBetweenTwoReadings) {
  const LiveReading before = reading(100, 50, 1'000'000'000, 10);
  const LiveReading now = reading(340, 130, 4'000'000'000, 12);
  EXPECT_EQ(live_text("decoding", before, now, 32, 2e9),
            "decoding  5.0 tokens/s  hits 75 %  1.50 GB/s of 2.00 (75 %)");
  EXPECT_EQ(live_text("pp512", before, now, 0, 0), "pp512  hits 75 %  1.50 GB/s");
  EXPECT_EQ(live_text("prompt", before, before, 0, 2e9), "prompt  0.00 GB/s of 2.00 (0 %)");
}

// A server counts its tokens, since several answers share experts; of prompts alone it has none.
TEST(LiveText, TakesCountedTokens) {
  LiveReading before = reading(100, 50, 0, 10);
  LiveReading now = reading(340, 130, 0, 12);
  before.tokens = 30;
  now.tokens = 50;
  EXPECT_EQ(live_text("2 answers", before, now, 0, 0),
            "2 answers  10.0 tokens/s  hits 75 %  0.00 GB/s");
  now.tokens = 30;
  EXPECT_EQ(live_text("2 answers", before, now, 0, 0), "2 answers  hits 75 %  0.00 GB/s");
}

}  // namespace
}  // namespace moepack::cli::live_line_test
