// The stopwatch of stages: every moment belongs to exactly one of them.
#include "runtime/model/stage_times.h"

#include <gtest/gtest.h>
#include <chrono>
#include <set>
#include <thread>

namespace moepack::stage_times_test {
namespace {

constexpr double kNap = 0.02;  // seconds

void nap() { std::this_thread::sleep_for(std::chrono::duration<double>(kNap)); }

TEST(StageTimes, StandStillUntilStarted) {
  StageTimes times;
  {
    const StageScope stage(times, Stage::kRouter);
    nap();
  }
  EXPECT_FALSE(times.is_running());
  EXPECT_EQ(times.read().total(), 0);
}

TEST(StageTimes, GiveEveryMomentToTheInnermostStage) {
  StageTimes times;
  const Clock::time_point before = Clock::now();
  times.start();
  const Clock::time_point started = Clock::now();
  {
    const StageScope outer(times, Stage::kExperts);
    nap();
    {
      const StageScope inner(times, Stage::kExpertWait);
      nap();
      nap();
    }
    nap();
  }
  nap();
  const double at_least = seconds_since(started);
  const StageSeconds read = times.read();
  const double at_most = seconds_since(before);
  EXPECT_GE(read.of(Stage::kExperts), 2 * kNap);
  EXPECT_GE(read.of(Stage::kExpertWait), 2 * kNap);
  EXPECT_GE(read.of(Stage::kOther), kNap);
  EXPECT_EQ(read.of(Stage::kRouter), 0);
  EXPECT_GE(read.total(), at_least - 1e-9);
  EXPECT_LE(read.total(), at_most + 1e-9);
}

TEST(StageTimes, ReadingsDifferByWhatCameBetween) {
  StageTimes times;
  times.start();
  nap();
  const StageSeconds first = times.read();
  {
    const StageScope stage(times, Stage::kHead);
    nap();
  }
  const StageSeconds second = times.read().since(first);
  EXPECT_GE(second.of(Stage::kHead), kNap);
  EXPECT_LT(second.of(Stage::kOther), first.of(Stage::kOther));
  StageSeconds sum = first;
  sum += second;
  EXPECT_NEAR(sum.total(), times.read().total(), kNap);
  times.start();
  EXPECT_LT(times.read().total(), kNap);
}

TEST(StageTimes, StagesHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Stage stage : all_stages()) names.insert(stage_name(stage));
  EXPECT_EQ(names.size(), kStages);
}

}  // namespace
}  // namespace moepack::stage_times_test
