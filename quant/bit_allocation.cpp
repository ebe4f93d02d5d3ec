#include "quant/bit_allocation.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace moepack {
namespace {

// The exact solution takes at most so many steps, and so many bytes for its table.
constexpr std::uint64_t kMostSteps = 400'000'000;
constexpr std::uint64_t kMostCells = 200'000'000;
constexpr std::size_t kMostChoices = 255;

using Choices = std::vector<AllocationChoice>;

// A choice worth considering: no other is as small and as cheap.
struct Candidate {
  std::uint64_t size = 0;
  double cost = 0;
  std::uint32_t index = 0;  // in the item's choices
};

// The candidates of an item, by rising size and falling cost.
std::vector<Candidate> candidates_of(const Choices& choices) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    all.push_back({choices[i].size, choices[i].cost, static_cast<std::uint32_t>(i)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.size != b.size ? a.size < b.size : a.cost < b.cost;
  });
  std::vector<Candidate> out;
  for (const Candidate& c : all) {
    if (out.empty() || c.cost < out.back().cost) out.push_back(c);
  }
  return out;
}

// How much cost each byte saves on the way from a to b.
double gain(const Candidate& a, const Candidate& b) {
  return (a.cost - b.cost) / static_cast<double>(b.size - a.size);
}

// The candidates on the lower convex hull, along which gains fall.
std::vector<Candidate> hull_of(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> hull;
  for (const Candidate& c : candidates) {
    while (hull.size() > 1 && gain(hull[hull.size() - 2], hull.back()) <= gain(hull.back(), c)) {
      hull.pop_back();
    }
    hull.push_back(c);
  }
  return hull;
}

class Knapsack {
 public:
  Knapsack(std::span<const Choices> items, std::uint64_t budget) : budget_(budget) {
    for (const Choices& choices : items) items_.push_back(candidates_of(choices));
  }

  std::optional<Allocation> solve() {
    std::uint64_t least = 0;
    for (const auto& item : items_) {
      if (item.front().size > budget_ - least) return std::nullopt;
      least += item.front().size;
    }
    relax(least);
    if (std::optional<Allocation> exact = solve_exactly(least)) return exact;
    return taken_;
  }

 private:
  struct Step {
    double gain = 0;
    std::uint32_t item = 0;
    std::uint32_t to = 0;  // in the item's hull
  };

  std::vector<Step> steps(const std::vector<std::vector<Candidate>>& hulls) const {
    std::vector<Step> out;
    for (std::uint32_t i = 0; i < hulls.size(); ++i) {
      for (std::uint32_t k = 1; k < hulls[i].size(); ++k) {
        out.push_back({gain(hulls[i][k - 1], hulls[i][k]), i, k});
      }
    }
    // The sort is stable, so the steps of one item stay in order: its gains fall.
    std::stable_sort(out.begin(), out.end(),
                     [](const Step& a, const Step& b) { return a.gain > b.gain; });
    return out;
  }

  // Takes the steepest steps that fit. The relaxation gains on this by what the first step that
  // does not fit would have saved in the room that is left.
  void relax(std::uint64_t least) {
    std::vector<std::vector<Candidate>> hulls;
    for (const auto& item : items_) hulls.push_back(hull_of(item));
    std::vector<std::uint32_t> at(items_.size(), 0);
    std::uint64_t left = budget_ - least;
    double lead = 0;
    bool is_full = false;
    double relaxed = 0;  // cost saved by the relaxation
    for (const Step& step : steps(hulls)) {
      const std::vector<Candidate>& hull = hulls[step.item];
      const std::uint64_t size = hull[step.to].size - hull[step.to - 1].size;
      const bool next = at[step.item] + 1 == step.to;
      if (next && size <= left) {
        left -= size;
        at[step.item] = step.to;
        if (!is_full) relaxed += hull[step.to - 1].cost - hull[step.to].cost;
      } else if (!is_full) {
        is_full = true;
        lead = step.gain * static_cast<double>(left);
      }
    }
    taken_.size = budget_ - left;
    double start = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      start += hulls[i].front().cost;
      taken_.cost += hulls[i][at[i]].cost;
      taken_.choice.push_back(hulls[i][at[i]].index);
    }
    taken_.bound = is_full ? start - relaxed - lead : taken_.cost;
  }

  // best[c]: least cost of the items so far with c units above their least sizes.
  std::optional<Allocation> solve_exactly(std::uint64_t least) const {
    std::uint64_t unit = 0;
    std::uint64_t most = 0;
    std::uint64_t count = 0;
    for (const auto& item : items_) {
      if (item.size() > kMostChoices) return std::nullopt;
      for (const Candidate& c : item) unit = std::gcd(unit, c.size - item.front().size);
      most += item.back().size - item.front().size;
      count += item.size();
    }
    if (unit == 0) return taken_;
    const std::uint64_t room = std::min(budget_ - least, most) / unit + 1;
    if (room > kMostSteps / count || room > kMostCells / items_.size()) return std::nullopt;
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<double> best(room, 0);
    std::vector<double> next(room);
    std::vector<std::uint8_t> from(items_.size() * room);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      std::fill(next.begin(), next.end(), kNever);
      for (std::size_t k = 0; k < items_[i].size(); ++k) {
        const std::uint64_t step = (items_[i][k].size - items_[i].front().size) / unit;
        for (std::uint64_t c = step; c < room; ++c) {
          const double cost = best[c - step] + items_[i][k].cost;
          if (!(cost < next[c])) continue;
          next[c] = cost;
          from[i * room + c] = static_cast<std::uint8_t>(k);
        }
      }
      std::swap(best, next);
    }
    Allocation out;
    out.choice.resize(items_.size());
    out.cost = out.bound = best[room - 1];
    std::uint64_t at = room - 1;
    for (std::size_t i = items_.size(); i-- > 0;) {
      const Candidate& c = items_[i][from[i * room + at]];
      out.choice[i] = c.index;
      out.size += c.size;
      at -= (c.size - items_[i].front().size) / unit;
    }
    return out;
  }

  std::uint64_t budget_;
  std::vector<std::vector<Candidate>> items_;
  Allocation taken_;  // by relax()
};

}  // namespace

std::optional<Allocation> allocate(std::span<const Choices> items, std::uint64_t budget) {
  return Knapsack(items, budget).solve();
}

}  // namespace moepack
