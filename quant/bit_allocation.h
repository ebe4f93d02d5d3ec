// Which of its sizes every item takes so that the sum of costs is least within a budget: the
// multiple-choice knapsack problem.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moepack {

struct AllocationChoice {
  std::uint64_t size = 0;
  double cost = 0;  // finite
};

struct Allocation {
  std::vector<std::uint32_t> choice;  // of each item, index into its choices
  std::uint64_t size = 0;             // <= budget
  double cost = 0;
  double bound = 0;  // no allocation within the budget costs less; = cost where that is certain
};

// Every item has at least one choice. nullopt: even the smallest choices exceed the budget.
// Problems whose sizes differ by multiples of a common unit are solved exactly, by dynamic
// programming, up to some hundred million steps. Larger problems are solved by their Lagrangian
// relaxation (lower convex hulls, steepest descent first), which leaves less than one item's step
// unused, and whose bound says how far from the optimum the result can be. Pure; any number of
// threads. Source: Sinha and Zoltners, The multiple-choice knapsack problem, 1979.
std::optional<Allocation> allocate(std::span<const std::vector<AllocationChoice>> items,
                                   std::uint64_t budget);

}  // namespace moepack
