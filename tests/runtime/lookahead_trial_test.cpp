#include "runtime/model/lookahead_trial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>

namespace moepack::lookahead_trial_test {
namespace {

using Trial = LookaheadTrial;

// Seconds of pass `pass` with and without reading ahead.
using Disk = std::function<double(std::uint32_t pass, bool is_ahead)>;

constexpr std::uint32_t kRound = Trial::kTrialPasses + Trial::kHeldPasses;

// Runs passes [first, first + count) of one token; how many of them read ahead.
std::uint32_t run(Trial& trial, const Disk& disk, std::uint32_t first, std::uint32_t count) {
  std::uint32_t ahead = 0;
  for (std::uint32_t pass = first; pass < first + count; ++pass) {
    const bool is_ahead = trial.reads_ahead();
    ahead += is_ahead ? 1 : 0;
    trial.note(1, disk(pass, is_ahead));
  }
  return ahead;
}

// Passes until the first trial has ended.
void run_first_trial(Trial& trial, const Disk& disk) {
  EXPECT_EQ(run(trial, disk, 0, Trial::kFirstPasses), Trial::kFirstPasses);
  EXPECT_EQ(run(trial, disk, Trial::kFirstPasses, Trial::kTrialPasses), Trial::kTrialPasses / 2);
}

Disk factor(double with_ahead) {
  return [=](std::uint32_t, bool is_ahead) { return is_ahead ? with_ahead : 1.0; };
}

TEST(LookaheadTrial, KeepsWhatTakesLessTime) {
  Trial pays;
  run_first_trial(pays, factor(.95));
  EXPECT_EQ(run(pays, factor(.95), 48, Trial::kHeldPasses), Trial::kHeldPasses);
  Trial costs;
  run_first_trial(costs, factor(1.05));
  EXPECT_EQ(run(costs, factor(1.05), 48, Trial::kHeldPasses), 0U);
}

// A cache that fills makes each pass faster than the one before: 3 % between two ways are less than
// what passes change from the first of a trial to the last.
TEST(LookaheadTrial, SeesThroughSteadyChange) {
  for (const double slope : {.98, 1.02}) {
    for (const double with_ahead : {.97, 1.03}) {
      const Disk disk = [=](std::uint32_t pass, bool is_ahead) {
        return std::pow(slope, pass) * (is_ahead ? with_ahead : 1.0);
      };
      Trial trial;
      run_first_trial(trial, disk);
      EXPECT_EQ(trial.reads_ahead(), with_ahead < 1) << slope << " " << with_ahead;
    }
  }
}

// A disk that stands still for seconds says nothing about the way that it happened to hit.
TEST(LookaheadTrial, IsNotMisledByStalls) {
  for (const std::uint32_t stalled : {18U, 19U, 45U}) {
    const Disk disk = [=](std::uint32_t pass, bool is_ahead) {
      return pass == stalled ? 10.0 : (is_ahead ? .095 : .1);
    };
    Trial trial;
    run_first_trial(trial, disk);
    EXPECT_TRUE(trial.reads_ahead()) << stalled;
  }
}

TEST(LookaheadTrial, FollowsADiskThatChanges) {
  Trial trial;
  run_first_trial(trial, factor(.9));
  (void)run(trial, factor(.9), 0, kRound);
  EXPECT_EQ(run(trial, factor(1.1), 0, Trial::kHeldPasses), Trial::kHeldPasses);
  // What was found earlier counts half, and half again.
  (void)run(trial, factor(1.1), 0, 2 * kRound - 1);
  EXPECT_FALSE(trial.reads_ahead());
}

TEST(LookaheadTrial, BeginsAnewWhereTheNumberOfTokensChanges) {
  Trial trial;
  (void)run(trial, factor(1.1), 0, Trial::kFirstPasses + Trial::kTrialPasses - 1);
  trial.note(4, 1);
  EXPECT_EQ(run(trial, factor(1.1), 0, Trial::kTrialPasses), Trial::kTrialPasses / 2);
  EXPECT_FALSE(trial.reads_ahead());
}

}  // namespace
}  // namespace moepack::lookahead_trial_test
