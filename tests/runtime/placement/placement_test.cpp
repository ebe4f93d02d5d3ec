// The placement of experts in the GPU's memory: weightings by their formulas, plans by properties
// that any plan must have, and reports that the fork's reader takes.
#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "formats/calibration/foreign_profile.h"
#include "runtime/placement/lane_report.h"
#include "runtime/placement/slot_planner.h"

namespace moepack::placement_test {
namespace {

// Two layers of four experts: the second waits three times as long, and is used twice as much.
LaneUse two_layers() {
  LaneUse use = empty_lane_use({.num_layers = 2, .num_experts = 4}, 2);
  use.layers[0] = {.calls = 10, .hot = {8, 0, 0, 0}, .cold = {0, 6, 6, 0}, .times = {}};
  use.layers[1] = {.calls = 10, .hot = {0, 0, 0, 0}, .cold = {20, 16, 0, 4}, .times = {}};
  use.layers[0].times = {.hot = 50, .cold = 70, .join_wait = 100, .total = 1000};
  use.layers[1].times = {.hot = 50, .cold = 90, .join_wait = 300, .total = 2000};
  return use;
}

std::uint64_t hot_set_bytes(const HotSet& set, std::span<const std::uint64_t> slot_bytes) {
  std::uint64_t bytes = 0;
  for (std::size_t l = 0; l < set.size(); ++l) bytes += set[l].size() * slot_bytes[l];
  return bytes;
}

TEST(SlotWeighting, FlatRanksWithinEachLayer) {
  const SlotScores s = slot_scores(two_layers(), SlotWeighting::kFlat);
  // Ranks count from 3, the most experts that any layer used; experts 1 and 2 tie and go by id.
  EXPECT_EQ(s[0], (std::vector<std::uint64_t>{3000008, 2000006, 1000006, 0}));
  EXPECT_EQ(s[1], (std::vector<std::uint64_t>{3000020, 2000016, 0, 1000004}));
}

TEST(SlotWeighting, BalancedCountsFromTheLayersOwnRanks) {
  LaneUse use = two_layers();
  use.layers[1].cold = {20, 0, 0, 0};
  const SlotScores s = slot_scores(use, SlotWeighting::kBalanced);
  EXPECT_EQ(s[0][0], 3000008U);
  EXPECT_EQ(s[1][0], 1000020U);
  EXPECT_EQ(slot_scores(use, SlotWeighting::kFlat)[1][0], 3000020U);
}

TEST(SlotWeighting, PressureFollowsTheJoinWait) {
  // Waits of 10 and 30 a call, mean 20: weights 1 + .5 (.5 - 1) = .75, held at .85, and 1.25.
  const SlotScores s = slot_scores(two_layers(), SlotWeighting::kPressure, 0.5);
  EXPECT_EQ(s[0][0], 7U);  // 8 x .85 + .05 x 8 = 7.2
  EXPECT_EQ(s[0][1], 5U);  // 6 x .85 = 5.1
  EXPECT_EQ(s[1][0], 25U);
  EXPECT_EQ(s[1][2], 0U);
}

TEST(SlotWeighting, SmoothAndTimeSpanTheirRanges) {
  const SlotScores smooth = slot_scores(two_layers(), SlotWeighting::kSmooth, 1.0);
  EXPECT_EQ(smooth[0][1], 6U);   // the least pressed layer: 1
  EXPECT_EQ(smooth[1][0], 26U);  // the most: 1.3
  const SlotScores time = slot_scores(two_layers(), SlotWeighting::kTime, 0.5);
  EXPECT_EQ(time[0][1], 4U);   // .7 x 6 = 4.2
  EXPECT_EQ(time[1][0], 28U);  // 1.4 x 20
}

TEST(SlotWeighting, WithoutTimesUsesDecide) {
  LaneUse use = two_layers();
  for (LayerLanes& layer : use.layers)
    layer = {.calls = 0, .hot = layer.hot, .cold = layer.cold, .times = {}};
  for (const auto w : {SlotWeighting::kPressure, SlotWeighting::kSmooth, SlotWeighting::kTime}) {
    const SlotScores s = slot_scores(use, w);
    EXPECT_EQ(s[1], (std::vector<std::uint64_t>{20, 16, 0, 4})) << slot_weighting_name(w);
  }
}

TEST(SlotWeighting, NamesReadBack) {
  for (const char* name : {"flat", "pressure", "smooth", "time", "balanced"}) {
    const auto w = parse_slot_weighting(name);
    ASSERT_TRUE(w.is_ok());
    EXPECT_EQ(slot_weighting_name(w.value()), name);
  }
  const auto wrong = parse_slot_weighting("even");
  ASSERT_FALSE(wrong.is_ok());
  EXPECT_NE(wrong.status().message().find("flat, pressure"), std::string::npos);
}

TEST(SlotPlanner, TakesTheBestThatFitsAndFillsUp) {
  const SlotScores scores = {{5, 9, 0, 1}, {8, 0, 2, 9}, {0, 0, 0, 0}};
  const std::vector<std::uint64_t> bytes = {10, 10, 10};
  EXPECT_EQ(plan_hot_set(scores, bytes, 30), (HotSet{{1}, {0, 3}, {}}));
  EXPECT_EQ(plan_hot_set(scores, bytes, 39), (HotSet{{1}, {0, 3}, {}}));
  // Six were used; the seventh slot goes to the unused one with the lowest id.
  EXPECT_EQ(plan_hot_set(scores, bytes, 70), (HotSet{{0, 1, 3}, {0, 2, 3}, {0}}));
  EXPECT_EQ(plan_hot_set(scores, bytes, 9), (HotSet{{}, {}, {}}));
  EXPECT_EQ(hot_set_bytes(plan_hot_set(scores, bytes, 1000), bytes), 120U);
}

TEST(SlotPlanner, SmallerExpertsFillWhatLargerOnesLeave) {
  const SlotScores scores = {{5, 9}, {8, 7}, {3, 3}};
  const std::vector<std::uint64_t> bytes = {10, 3, 0};  // the third has no experts
  EXPECT_EQ(plan_hot_set(scores, bytes, 16), (HotSet{{1}, {0, 1}, {}}));
}

TEST(SlotPlanner, RandomPlansFitAndLeaveNoBetterExpertOut) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 200; ++round) {
    SlotScores scores(1 + rng() % 5, std::vector<std::uint64_t>(1 + rng() % 9));
    std::vector<std::uint64_t> bytes(scores.size());
    for (auto& b : bytes) b = 1 + rng() % 3;
    for (auto& layer : scores) {
      for (auto& s : layer) s = rng() % 6;
    }
    const std::uint64_t budget = rng() % 60;
    const HotSet set = plan_hot_set(scores, bytes, budget);
    const std::uint64_t used = hot_set_bytes(set, bytes);
    ASSERT_LE(used, budget);
    for (std::size_t l = 0; l < scores.size(); ++l) {
      ASSERT_TRUE(std::is_sorted(set[l].begin(), set[l].end()));
      for (std::uint32_t e = 0; e < scores[l].size(); ++e) {
        if (std::binary_search(set[l].begin(), set[l].end(), e)) continue;
        ASSERT_GT(bytes[l], budget - used) << "an expert that fits was left out";
        for (const std::uint32_t kept : set[l]) ASSERT_GE(scores[l][kept], scores[l][e]);
      }
    }
  }
}

TEST(SlotExchange, WinsTheMostWithinItsBound) {
  const HotSet hot = {{0, 1}, {}};
  const SlotScores scores = {{5, 1, 7, 0}, {9, 0, 0, 0}};
  const std::vector<std::uint64_t> bytes = {10, 10};
  // A layer without hot experts gains its slot.
  EXPECT_EQ(plan_exchange(hot, scores, bytes, 0.5), (std::vector<SlotExchange>{{0, 1, 1, 0}}));
  const auto all = plan_exchange(hot, scores, bytes, 1);
  EXPECT_EQ(all, (std::vector<SlotExchange>{{0, 1, 1, 0}, {0, 0, 0, 2}}));
  HotSet after = hot;
  apply_exchange(all, after);
  EXPECT_EQ(after, (HotSet{{2}, {0}}));
  EXPECT_TRUE(plan_exchange(after, scores, bytes, 1).empty());
  EXPECT_TRUE(plan_exchange(hot, scores, bytes, 0).empty());
  // Slots of other sizes do not change hands.
  const std::vector<std::uint64_t> uneven = {10, 20};
  EXPECT_EQ(plan_exchange(hot, scores, uneven, 1), (std::vector<SlotExchange>{{0, 1, 0, 2}}));
}

TEST(SlotExchange, ReachesThePlanOfTheSameScores) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 100; ++round) {
    SlotScores before(4, std::vector<std::uint64_t>(16));
    SlotScores after = before;
    for (std::size_t l = 0; l < 4; ++l) {
      for (std::size_t e = 0; e < 16; ++e) {
        before[l][e] = 1 + rng() % 1000;
        after[l][e] = 1 + rng() % 1000;
      }
    }
    const std::vector<std::uint64_t> bytes(4, 7);
    HotSet hot = plan_hot_set(before, bytes, 7 * 20);
    const auto worth = [&](const HotSet& set) {
      std::uint64_t sum = 0;
      for (std::size_t l = 0; l < 4; ++l) {
        for (const std::uint32_t e : set[l]) sum += after[l][e];
      }
      return sum;
    };
    for (int step = 0; step < 5; ++step) {
      const std::uint64_t had = worth(hot);
      const auto exchanges = plan_exchange(hot, after, bytes, 0.2);
      ASSERT_LE(exchanges.size(), 4U);
      apply_exchange(exchanges, hot);
      ASSERT_EQ(hot_set_bytes(hot, bytes), 7U * 20);
      ASSERT_TRUE(exchanges.empty() || worth(hot) > had);
    }
    EXPECT_EQ(worth(hot), worth(plan_hot_set(after, bytes, 7 * 20)));
  }
}

TEST(LaneReport, IsAProfileThatReadsBack) {
  const LaneUse use = two_layers();
  const std::string text = lane_report_text(use);
  const auto read = parse_profile_json(text, "report", {});
  // The schema tells no number of layers.
  ASSERT_FALSE(read.is_ok());
  const auto known = parse_profile_json(text, "report", {.num_layers = 2, .num_experts = 4});
  ASSERT_TRUE(known.is_ok()) << known.status().message();
  EXPECT_EQ(known.value().profile.experts_per_token, 2U);
  const auto again = lane_use_of(known.value().profile);
  ASSERT_TRUE(again.is_ok());
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t e = 0; e < 4; ++e) {
      EXPECT_EQ(again.value().layers[l].uses(e), use.layers[l].uses(e));
    }
  }
  EXPECT_NE(text.find("\"parallel_join_wait_time_per_call_us\": 30.0"), std::string::npos) << text;
  EXPECT_NE(text.find("\"hot_slot_ratio\": 0.4"), std::string::npos) << text;
}

TEST(LaneReport, LeavesOutLayersWithoutACall) {
  LaneUse use = two_layers();
  use.layers[0].calls = 0;
  const std::string text = lane_report_text(use);
  EXPECT_EQ(text.find("\"layer\": 0"), std::string::npos);
  EXPECT_NE(text.find("\"layer\": 1"), std::string::npos);
  EXPECT_EQ(no_lane_report_text(),
            "{\"enabled\":false,\"mode\":\"off\",\"schema\":\"llama.cpp.moe_layer_opt_perf.v1\","
            "\"layers\":[]}\n");
}

TEST(LaneUse, RanksWithoutCountsAreRefused) {
  ExpertProfile profile;
  profile.shape = {.num_layers = 1, .num_experts = 2};
  profile.layers.resize(1);
  profile.layers[0].ranks = {1, 0};
  const auto use = lane_use_of(profile);
  ASSERT_FALSE(use.is_ok());
  EXPECT_EQ(use.status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace moepack::placement_test
