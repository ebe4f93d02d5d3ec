// The allocation of bits against every possible choice on small problems, and on large ones against
// the Lagrangian dual, computed here by searching its multiplier.
#include "quant/bit_allocation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace moepack::bit_allocation_test {
namespace {

using Items = std::vector<std::vector<AllocationChoice>>;

// The least cost within the budget, found by trying everything; nullopt when nothing fits.
std::optional<double> least_cost(const Items& items, std::uint64_t budget, std::size_t first = 0) {
  if (first == items.size()) return 0;
  std::optional<double> best;
  for (const AllocationChoice& c : items[first]) {
    if (c.size > budget) continue;
    const std::optional<double> rest = least_cost(items, budget - c.size, first + 1);
    if (rest.has_value() && (!best.has_value() || c.cost + *rest < *best)) best = c.cost + *rest;
  }
  return best;
}

// What the choices say must be what the sums say.
void expect_consistent(const Items& items, std::uint64_t budget, const Allocation& a) {
  ASSERT_EQ(a.choice.size(), items.size());
  std::uint64_t size = 0;
  double cost = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    ASSERT_LT(a.choice[i], items[i].size());
    size += items[i][a.choice[i]].size;
    cost += items[i][a.choice[i]].cost;
  }
  EXPECT_EQ(a.size, size);
  EXPECT_LE(size, budget);
  EXPECT_NEAR(a.cost, cost, 1e-9 * std::abs(cost));
}

// Costs are multiples of 1/8, so that sums are exact.
Items random_items(std::mt19937& random, std::size_t count, std::uint64_t unit,
                   std::uint64_t most_units) {
  Items items(count);
  for (auto& choices : items) {
    choices.resize(1 + random() % 5);
    for (AllocationChoice& c : choices) {
      c.size = unit * (random() % most_units);
      c.cost = static_cast<double>(random() % 200) / 8;
    }
  }
  return items;
}

std::uint64_t sum_of(const Items& items, bool largest) {
  std::uint64_t sum = 0;
  for (const auto& choices : items) {
    const auto [least, most] = std::minmax_element(
        choices.begin(), choices.end(),
        [](const AllocationChoice& a, const AllocationChoice& b) { return a.size < b.size; });
    sum += largest ? most->size : least->size;
  }
  return sum;
}

// The most that one item's next larger choices can save, which is what the relaxation may miss.
double largest_step(const Items& items) {
  double most = 0;
  for (const auto& choices : items) {
    double low = std::numeric_limits<double>::max();
    double high = 0;
    for (const AllocationChoice& c : choices) {
      low = std::min(low, c.cost);
      high = std::max(high, c.cost);
    }
    most = std::max(most, high - low);
  }
  return most;
}

// The largest value over m in [0, most] of the sum of min(cost + m * size) less m * budget, which
// is concave in m.
double dual(const Items& items, std::uint64_t budget, double most) {
  const auto value = [&](double m) {
    double sum = -m * static_cast<double>(budget);
    for (const auto& choices : items) {
      double best = std::numeric_limits<double>::infinity();
      for (const AllocationChoice& c : choices) {
        best = std::min(best, c.cost + m * static_cast<double>(c.size));
      }
      sum += best;
    }
    return sum;
  };
  double low = 0;
  double high = most;
  for (int i = 0; i < 300; ++i) {
    const double a = low + (high - low) / 3;
    const double b = high - (high - low) / 3;
    (value(a) < value(b) ? low : high) = value(a) < value(b) ? a : b;
  }
  return value(low);
}

TEST(BitAllocation, IsTheBestOfAllOnSmallProblems) {
  std::mt19937 random(1);
  int feasible = 0;
  int infeasible = 0;
  for (std::size_t round = 0; round < 3000; ++round) {
    const std::uint64_t unit = std::array{1ULL, 3ULL, 4096ULL, 1000003ULL}[round % 4];
    const Items items = random_items(random, 1 + random() % 6, unit, 1 + random() % 40);
    const std::uint64_t budget = random() % (sum_of(items, true) + 2 * unit);
    const std::optional<double> best = least_cost(items, budget);
    const std::optional<Allocation> found = allocate(items, budget);
    ASSERT_EQ(found.has_value(), best.has_value()) << "round " << round;
    ++(best.has_value() ? feasible : infeasible);
    if (!best.has_value()) continue;
    expect_consistent(items, budget, *found);
    EXPECT_EQ(found->cost, *best) << "round " << round;
    EXPECT_EQ(found->bound, found->cost) << "round " << round;
  }
  EXPECT_GT(feasible, 1000);
  EXPECT_GT(infeasible, 100);
}

TEST(BitAllocation, BudgetToTheByte) {
  const Items items{{{10, 9}, {20, 4}, {30, 0}}, {{11, 9}, {25, 1}}};
  for (std::uint64_t budget = 0; budget < 80; ++budget) {
    const std::optional<double> best = least_cost(items, budget);
    const std::optional<Allocation> found = allocate(items, budget);
    ASSERT_EQ(found.has_value(), best.has_value()) << budget;
    EXPECT_EQ(found.has_value(), budget >= 21) << budget;
    if (found.has_value()) {
      EXPECT_EQ(found->cost, *best) << budget;
    }
  }
}

TEST(BitAllocation, SingleItemsEqualSizesAndDominatedChoices) {
  const auto one = allocate(Items{{{5, 2.0}}}, 5);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->choice, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(one->cost, 2);
  EXPECT_EQ(one->bound, 2);
  EXPECT_FALSE(allocate(Items{{{5, 2.0}}}, 4).has_value());
  // Where all choices have one size, the cheapest is taken, even without room to spare.
  const auto equal = allocate(Items{{{5, 3.0}, {5, 1.0}, {5, 2.0}}, {{7, 4.0}, {7, 5.0}}}, 12);
  ASSERT_TRUE(equal.has_value());
  EXPECT_EQ(equal->choice, (std::vector<std::uint32_t>{1, 0}));
  // A larger and dearer choice is never taken, whatever room there is.
  const auto dominated = allocate(Items{{{8, 5.0}, {4, 1.0}, {6, 1.0}, {5, 7.0}}}, 1000);
  ASSERT_TRUE(dominated.has_value());
  EXPECT_EQ(dominated->choice, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(dominated->size, 4U);
  const auto none = allocate(Items{}, 0);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->size, 0U);
}

TEST(BitAllocation, SmallestChoicesThatOverflowTheBudgetTogether) {
  // The sum of these sizes wraps around 64 bits to something that would fit.
  const std::uint64_t half = std::uint64_t{1} << 63;
  EXPECT_FALSE(allocate(Items{{{half, 1.0}}, {{half, 1.0}}, {{1, 1.0}}}, half + 5).has_value());
}

TEST(BitAllocation, TiesAreBrokenAlike) {
  const std::vector<AllocationChoice> choices{{1, 8}, {2, 4}, {3, 0}};
  const Items items(9, choices);
  const auto first = allocate(items, 17);
  ASSERT_TRUE(first.has_value());
  for (int round = 0; round < 5; ++round) {
    const auto again = allocate(items, 17);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->choice, first->choice);
  }
  EXPECT_EQ(first->cost, 9 * 8 - 4 * (17 - 9));  // 4 for every unit of room
}

// The sizes are so large and uneven that no table holds the exact solution.
Items uneven_items(std::mt19937& random, std::size_t count) {
  Items items(count);
  for (auto& choices : items) {
    std::uint64_t size = 1'000'000'000 + random();
    double cost = 1000 + static_cast<double>(random() % 1000);
    for (int k = 0; k < 4; ++k) {
      choices.push_back({size, cost});
      size += 1'000'003 + random();
      cost *= 0.1 + 0.8 * static_cast<double>(random() % 1000) / 1000;
    }
    std::shuffle(choices.begin(), choices.end(), random);
  }
  return items;
}

TEST(BitAllocation, LargeProblemsWithinOneStepOfTheOptimum) {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    const Items items = uneven_items(random, 300);
    const std::uint64_t least = sum_of(items, false);
    const std::uint64_t most = sum_of(items, true);
    const std::uint64_t budget =
        least + static_cast<std::uint64_t>(static_cast<double>(most - least) * (round + 1) / 32);
    const auto found = allocate(items, budget);
    ASSERT_TRUE(found.has_value());
    expect_consistent(items, budget, *found);
    EXPECT_LE(found->bound, found->cost * (1 + 1e-12));
    EXPECT_LE(found->cost, found->bound + largest_step(items));
    // No line of the hulls is steeper than all of an item's cost over its smallest step.
    const double expected = dual(items, budget, 2000.0 / 1'000'003);
    EXPECT_NEAR(found->bound, expected, 1e-8 * expected) << "round " << round;
  }
}

TEST(BitAllocation, RelaxationAgainstEveryChoice) {
  std::mt19937 random(3);
  int inexact = 0;
  for (int round = 0; round < 300; ++round) {
    const Items items = uneven_items(random, 5);
    const std::uint64_t least = sum_of(items, false);
    const std::uint64_t budget = least + random() % (sum_of(items, true) - least);
    const std::optional<double> best = least_cost(items, budget);
    const auto found = allocate(items, budget);
    ASSERT_TRUE(found.has_value() && best.has_value());
    expect_consistent(items, budget, *found);
    EXPECT_LE(found->bound, *best * (1 + 1e-12));
    EXPECT_GE(found->cost, *best * (1 - 1e-12));
    EXPECT_LE(found->cost, *best + largest_step(items));
    if (found->bound < found->cost * (1 - 1e-9)) ++inexact;
  }
  EXPECT_GT(inexact, 250);  // else this tests the exact solution
}

TEST(BitAllocation, EverythingFitsWithoutLoss) {
  std::mt19937 random(4);
  const Items items = uneven_items(random, 50);
  const auto found = allocate(items, sum_of(items, true));
  ASSERT_TRUE(found.has_value());
  double least = 0;
  for (const auto& choices : items) {
    double best = choices.front().cost;
    for (const AllocationChoice& c : choices) best = std::min(best, c.cost);
    least += best;
  }
  EXPECT_NEAR(found->cost, least, 1e-9 * least);
  EXPECT_EQ(found->bound, found->cost);
  EXPECT_FALSE(allocate(items, sum_of(items, false) - 1).has_value());
  const auto smallest = allocate(items, sum_of(items, false));
  ASSERT_TRUE(smallest.has_value());
  EXPECT_EQ(smallest->size, sum_of(items, false));
  EXPECT_NEAR(smallest->bound, smallest->cost, 1e-9 * smallest->cost);
}

}  // namespace
}  // namespace moepack::bit_allocation_test
