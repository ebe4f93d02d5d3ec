#include "runtime/model/v_head_order.h"

#include <gtest/gtest.h>

namespace moepack::v_head_order_test {
namespace {

using VHeads = ResidentConventions::VHeads;

// Two key heads with three V heads each, units of two: grouped head g * 3 + j is tiled j * 2 + g.
TEST(VHeadOrder, FollowsTheDefinition) {
  const std::vector<int> grouped{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51};
  const std::vector<int> tiled{0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51};
  std::vector<int> values = grouped;
  reorder_v_heads(std::span(values), 2, 6, VHeads::kGrouped, VHeads::kTiled);
  EXPECT_EQ(values, tiled);
  reorder_v_heads(std::span(values), 2, 6, VHeads::kTiled, VHeads::kGrouped);
  EXPECT_EQ(values, grouped);
}

TEST(VHeadOrder, NothingMovesWithoutNeed) {
  std::vector<int> values{1, 2, 3, 4};
  const std::vector<int> before = values;
  reorder_v_heads(std::span(values), 2, 4, VHeads::kTiled, VHeads::kTiled);
  EXPECT_EQ(values, before);
  reorder_v_heads(std::span(values), 4, 4, VHeads::kTiled, VHeads::kGrouped);
  EXPECT_EQ(values, before);
}

}  // namespace
}  // namespace moepack::v_head_order_test
