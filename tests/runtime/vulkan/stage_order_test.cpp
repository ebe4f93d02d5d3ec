#include "runtime/vulkan/stage_order.h"

#include <gtest/gtest.h>

#include <numeric>

namespace moepack::stage_order_test {
namespace {

// Programs look at so many stages before theirs; first and behind a barrier nobody counts those.
void expect_nothing_before(const StageOrder& order, std::uint32_t stage) {
  ASSERT_GE(stage, StageOrder::kStagesSeen);
  for (std::uint32_t back = 1; back <= StageOrder::kStagesSeen; ++back) {
    EXPECT_EQ(order.counts()[stage - back], 0U) << back;
  }
}

TEST(StageOrder, StagesOfOrderedProgramsNeedNoBarrier) {
  StageOrder order;
  EXPECT_FALSE(order.needs_barrier(true));
  const std::uint32_t first = order.add(5);
  EXPECT_EQ(order.add(7), first) << "the same stage";
  order.end_stage();
  order.end_stage();  // asked for twice
  EXPECT_FALSE(order.needs_barrier(true));
  EXPECT_EQ(order.add(3), first + 1);
  EXPECT_EQ(order.counts()[first], 12U);
  EXPECT_EQ(order.counts()[first + 1], 3U);
  expect_nothing_before(order, first);
}

TEST(StageOrder, OtherProgramsHaveBarriersOnBothSides) {
  StageOrder order;
  EXPECT_FALSE(order.needs_barrier(false));
  order.add_unordered();
  EXPECT_FALSE(order.needs_barrier(true)) << "beside it";
  EXPECT_FALSE(order.needs_barrier(false)) << "beside it";
  order.end_stage();
  EXPECT_TRUE(order.needs_barrier(true)) << "it counts nothing that could be waited for";
  EXPECT_TRUE(order.needs_barrier(false));
  order.note_barrier();
  EXPECT_FALSE(order.needs_barrier(true));
  const std::uint32_t before = order.add(1);
  order.end_stage();
  EXPECT_TRUE(order.needs_barrier(false)) << "it waits for nothing by itself";
  const std::uint32_t behind = order.add(1);
  EXPECT_EQ(behind, before + 1);
  EXPECT_TRUE(order.needs_barrier(false)) << "beside an ordered one that waits by a counter";
  order.note_barrier();
  order.add_unordered();
  order.end_stage();
  order.note_barrier();
  const std::uint32_t last = order.add(4);
  ASSERT_GT(last, behind + StageOrder::kStagesSeen);
  expect_nothing_before(order, last);
}

TEST(StageOrder, BeyondTheMostStagesThereAreBarriers) {
  StageOrder order;
  std::uint32_t barriers = 0;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < 2 * StageOrder::kMostStages; ++i) {
    if (order.needs_barrier(true)) {
      order.note_barrier();
      ++barriers;
    }
    last = order.add(1);
    ASSERT_LT(last, StageOrder::kMostStages);
    order.end_stage();
  }
  EXPECT_GE(barriers, StageOrder::kMostStages);
  EXPECT_EQ(last, StageOrder::kMostStages - 1);
  const auto counts = order.counts();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0U), 2 * StageOrder::kMostStages);
}

}  // namespace
}  // namespace moepack::stage_order_test
