#include "convert/cli/progress.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moepack::cli::progress_test {
namespace {

TEST(Progress, BytesInDecimalUnitsWithThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(999499), "999 kB");
  EXPECT_EQ(format_bytes(999999), "1.00 MB");
  EXPECT_EQ(format_bytes(12345678), "12.3 MB");
  EXPECT_EQ(format_bytes(217430000000), "217 GB");
  EXPECT_EQ(format_bytes(~std::uint64_t{0}), "18446744 TB");
}

TEST(Progress, DurationsInTheUnitsPeopleReadThem) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(200), "3m20s");
  EXPECT_EQ(format_duration(7500), "2h05m");
}

TEST(Progress, ALineForEveryLayerAndNothingElseWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line(/*terminal=*/false, /*quiet=*/false);
    for (std::uint32_t layer = 0; layer <= 3; ++layer) {
      for (std::uint64_t step = 0; step < 5; ++step) line.update(layer * 100 + step, 400, layer, 4);
    }
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.rfind("layer 1/4, 100 B of 400 B", 0), 0U) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, ATerminalsLineIsRemovedAtTheEnd) {
  testing::internal::CaptureStderr();
  { ProgressLine(/*terminal=*/true, /*quiet=*/false).update(1, 2, 0, 4); }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
}

TEST(Progress, ALineWhereAllIsDoneAndNoneForMoreOfIt) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line(/*terminal=*/false, /*quiet=*/false);
    for (const std::uint64_t done : {300U, 350U, 400U, 400U}) line.update(done, 400, 4, 4);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("400 B of 400 B"), std::string::npos) << text;
}

TEST(Progress, AReportBeyondTheEstimateTellsNoTimeLeft) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line(/*terminal=*/false, /*quiet=*/false);
    line.update(500, 400, 1, 4);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text, "layer 1/4, 500 B of 400 B\n");
}

TEST(Progress, AnotherStageOfTheSameLayersHasLinesOfItsOwn) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line(/*terminal=*/false, /*quiet=*/false);
    line.update_tokens(10, 100, 1, 2);
    line.update_tokens(20, 100, 2, 2);
    line.update_tokens(30, 100, 2, 2, "response of layer");
    line.update_tokens(40, 100, 1, 2, "response of layer");
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_NE(text.find("response of layer 1/2, 40 tokens of 100 tokens"), std::string::npos) << text;
}

TEST(Progress, QuietIsQuiet) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line(/*terminal=*/true, /*quiet=*/true);
    line.update(1, 2, 1, 4);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace moepack::cli::progress_test
