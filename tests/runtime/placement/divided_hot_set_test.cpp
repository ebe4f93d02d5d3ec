// Hot experts of a model whose layers several devices share: uses, sets and plans taken apart by
// layers and put together again.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "runtime/placement/hot_plan.h"
#include "runtime/placement/slot_planner.h"

namespace moepack::divided_hot_set_test {
namespace {

constexpr std::uint32_t kLayers = 5;
constexpr std::uint32_t kExperts = 4;
constexpr LayerRange kFirst{0, 2};
constexpr LayerRange kSecond{2, kLayers};

LaneUse some_use() {
  LaneUse use = empty_lane_use({kLayers, kExperts}, 2);
  std::uint64_t count = 1;
  for (LayerLanes& layer : use.layers) {
    for (std::uint64_t& hot : layer.hot) hot = count++;
    for (std::uint64_t& cold : layer.cold) cold = count++;
    layer.calls = count;
  }
  return use;
}

std::uint64_t uses_of(const LaneUse& use) {
  std::uint64_t uses = 0;
  for (const LayerLanes& layer : use.layers) uses += layer.all_uses();
  return uses;
}

HotPart part_of(const LaneUse& whole, const LayerRange& range, std::uint64_t slots) {
  const LaneUse use = layers_of(whole, range);
  const std::vector<std::uint32_t> experts(range.count(), kExperts);
  return {.plan = plan_hot_experts(use, SlotWeighting::kFlat, experts, slots),
          .layers = range.count(),
          .experts = std::uint64_t{range.count()} * kExperts,
          .uses = uses_of(use),
          .holds_all = false};
}

TEST(DividedHotSet, UsesOfLayersComeTogetherAgain) {
  const LaneUse whole = some_use();
  LaneUse both = layers_of(whole, kFirst);
  EXPECT_EQ(both.shape.num_layers, 2U);
  LaneUse rest = layers_of(whole, kSecond);
  EXPECT_EQ(rest.layers.front().hot, whole.layers[2].hot);
  rest.fallbacks[1] = 7;
  both.fallbacks[1] = 2;
  append_layers(rest, both);
  EXPECT_EQ(both.shape.num_layers, kLayers);
  EXPECT_EQ(both.shape.num_experts, kExperts);
  EXPECT_EQ(both.fallbacks[1], 9U);
  ASSERT_EQ(both.layers.size(), whole.layers.size());
  for (std::size_t l = 0; l < kLayers; ++l) {
    EXPECT_EQ(both.layers[l].hot, whole.layers[l].hot) << l;
    EXPECT_EQ(both.layers[l].cold, whole.layers[l].cold) << l;
    EXPECT_EQ(both.layers[l].calls, whole.layers[l].calls) << l;
  }
}

TEST(DividedHotSet, SetsMayHaveFewerLayersThanTheModel) {
  const HotSet set{{0}, {}, {1, 3}};
  EXPECT_EQ(layers_of(set, kFirst), (HotSet{{0}, {}}));
  EXPECT_EQ(layers_of(set, kSecond), (HotSet{{1, 3}, {}, {}}));
}

TEST(DividedHotSet, PlansOfDevicesAddUpToOne) {
  const LaneUse whole = some_use();
  const std::array<HotPart, 2> parts{part_of(whole, kFirst, 3), part_of(whole, kSecond, 5)};
  const HotPlan joined = join_hot_plans(parts);
  EXPECT_EQ(joined.slots, 8U);
  ASSERT_TRUE(joined.set.has_value());
  ASSERT_EQ(joined.set->size(), kLayers);
  double hits = 0;
  for (std::size_t l = 0; l < kLayers; ++l) {
    for (const std::uint32_t e : (*joined.set)[l]) {
      hits += static_cast<double>(whole.layers[l].uses(e));
    }
  }
  EXPECT_NEAR(joined.hit_share, hits / static_cast<double>(uses_of(whole)), 1e-12);
  EXPECT_TRUE(joined.reason.empty());
}

TEST(DividedHotSet, ADeviceThatHoldsAllServesEveryUse) {
  const LaneUse whole = some_use();
  std::array<HotPart, 2> parts{part_of(whole, kFirst, 3), part_of(whole, kSecond, 0)};
  const double share = parts[0].plan.hit_share;
  parts[1].holds_all = true;
  parts[1].plan = {.slots = 0, .set = {}, .hit_share = 0, .reason = "all are there"};
  const HotPlan joined = join_hot_plans(parts);
  EXPECT_EQ(joined.slots, 3U + 3 * kExperts);
  ASSERT_TRUE(joined.set.has_value());
  EXPECT_EQ(joined.set->size(), kLayers);
  const double first = static_cast<double>(parts[0].uses);
  const double second = static_cast<double>(parts[1].uses);
  EXPECT_NEAR(joined.hit_share, (first * share + second) / (first + second), 1e-12);
  EXPECT_TRUE(joined.reason.empty()) << "a device uses the profile";
}

TEST(DividedHotSet, WithoutASetAnywhereTheReasonIsSaid) {
  std::array<HotPart, 2> parts;
  parts[1].plan.reason = "no room";
  const HotPlan joined = join_hot_plans(parts);
  EXPECT_FALSE(joined.set.has_value());
  EXPECT_EQ(joined.reason, "no room");
}

TEST(DividedHotSet, ChangesOfDevicesAddUp) {
  HotChange sum;
  add_change({.is_active = true,
              .rate = .5,
              .candidates = 3,
              .most = 2,
              .exchanged = 1,
              .hot = 4,
              .layers = 1},
             sum);
  add_change({.is_active = false,
              .rate = .5,
              .candidates = 1,
              .most = 1,
              .exchanged = 1,
              .hot = 2,
              .layers = 2},
             sum);
  EXPECT_TRUE(sum.is_active);
  EXPECT_EQ(sum.rate, .5);
  EXPECT_EQ(sum.candidates, 4U);
  EXPECT_EQ(sum.most, 3U);
  EXPECT_EQ(sum.exchanged, 2U);
  EXPECT_EQ(sum.hot, 6U);
  EXPECT_EQ(sum.layers, 3U);
}

}  // namespace
}  // namespace moepack::divided_hot_set_test
