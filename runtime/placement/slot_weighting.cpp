#include "runtime/placement/slot_weighting.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>

namespace moepack {
namespace {

struct NamedWeighting {
  SlotWeighting weighting;
  std::string_view name;
};
constexpr std::array<NamedWeighting, 5> kWeightings = {{
    {SlotWeighting::kFlat, "flat"},
    {SlotWeighting::kPressure, "pressure"},
    {SlotWeighting::kSmooth, "smooth"},
    {SlotWeighting::kTime, "time"},
    {SlotWeighting::kBalanced, "balanced"},
}};

// An expert that was hot keeps its slot against one that was used as often.
constexpr double kHotBonus = 0.05;
constexpr std::uint64_t kRankStep = 1'000'000;

double per_call(double sum, const LayerLanes& layer) {
  return layer.calls == 0 ? 0 : sum / static_cast<double>(layer.calls);
}

// The first of these that is above 0: how long a lane waits, how much longer the cold one takes,
// how many slots it computes.
double pressure_of(const LayerLanes& layer) {
  const double wait = per_call(layer.times.join_wait, layer);
  if (wait > 0) return wait;
  const double longer = per_call(layer.times.cold - layer.times.hot, layer);
  if (longer > 0) return longer;
  return per_call(static_cast<double>(layer.cold_uses()), layer);
}

// The value below which `share` of the sorted values lie, between two of them by proportion.
double percentile(std::span<const double> sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], at - static_cast<double>(low));
}

// Where `value` lies between the two, 0 to 1; 0 where they are equal.
double share_between(double value, double low, double high) {
  return high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0;
}

// One weight for each layer from its figure; layers whose figure is 0 count 1.
std::vector<double> layer_weights(const std::vector<double>& figures,
                                  const std::function<double(double)>& weight) {
  std::vector<double> out(figures.size(), 1.0);
  for (std::size_t l = 0; l < figures.size(); ++l) {
    if (figures[l] > 0) out[l] = weight(figures[l]);
  }
  return out;
}

std::vector<double> sorted_positive(const std::vector<double>& figures) {
  std::vector<double> out;
  std::copy_if(figures.begin(), figures.end(), std::back_inserter(out),
               [](double f) { return f > 0; });
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<double> figures_of(const LaneUse& use, SlotWeighting weighting) {
  std::vector<double> out;
  bool has_times = false;
  for (const LayerLanes& layer : use.layers) has_times = has_times || layer.times.total > 0;
  for (const LayerLanes& layer : use.layers) {
    const bool by_time = weighting == SlotWeighting::kTime && has_times;
    out.push_back(by_time ? per_call(layer.times.total, layer) : pressure_of(layer));
  }
  return out;
}

std::vector<double> weights_of(const LaneUse& use, SlotWeighting weighting, double curve) {
  const std::vector<double> figures = figures_of(use, weighting);
  const std::vector<double> sorted = sorted_positive(figures);
  if (sorted.empty()) return std::vector<double>(figures.size(), 1.0);
  if (weighting == SlotWeighting::kPressure) {
    const double mean =
        std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
    return layer_weights(figures, [&](double p) {
      return std::clamp(1 + curve * (p / mean - 1), 1 - 0.3 * curve, 1 + 0.6 * curve);
    });
  }
  if (weighting == SlotWeighting::kSmooth) {
    const double low = percentile(sorted, 0.1);
    const double high = percentile(sorted, 0.9);
    return layer_weights(figures, [&](double p) {
      return 1 + 0.3 * curve * std::sqrt(share_between(p, low, high));
    });
  }
  return layer_weights(figures, [&](double p) {
    return 1 - 0.6 * curve + share_between(p, sorted.front(), sorted.back()) * 1.4 * curve;
  });
}

// Uses that are weighted by layer.
SlotScores weighted_scores(const LaneUse& use, SlotWeighting weighting, double curve) {
  const std::vector<double> weights = weights_of(use, weighting, curve);
  SlotScores scores(use.layers.size());
  for (std::size_t l = 0; l < use.layers.size(); ++l) {
    const LayerLanes& layer = use.layers[l];
    scores[l].assign(layer.hot.size(), 0);
    for (std::size_t e = 0; e < layer.hot.size(); ++e) {
      if (layer.uses(e) == 0) continue;
      const double score = static_cast<double>(layer.uses(e)) * weights[l] +
                           kHotBonus * static_cast<double>(layer.hot[e]);
      scores[l][e] = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(score)));
    }
  }
  return scores;
}

// Used experts of a layer, most used first and equally used ones by id.
std::vector<std::size_t> ranking(const LayerLanes& layer) {
  std::vector<std::size_t> ids;
  for (std::size_t e = 0; e < layer.hot.size(); ++e) {
    if (layer.uses(e) != 0) ids.push_back(e);
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return layer.uses(a) > layer.uses(b); });
  return ids;
}

// By rank; `flat` counts all layers' ranks from the same number.
SlotScores rank_scores(const LaneUse& use, bool flat) {
  std::vector<std::vector<std::size_t>> rankings;
  std::size_t longest = 0;
  for (const LayerLanes& layer : use.layers) {
    rankings.push_back(ranking(layer));
    longest = std::max(longest, rankings.back().size());
  }
  SlotScores scores(use.layers.size());
  for (std::size_t l = 0; l < use.layers.size(); ++l) {
    scores[l].assign(use.layers[l].hot.size(), 0);
    const std::size_t from = flat ? longest : rankings[l].size();
    for (std::size_t i = 0; i < rankings[l].size(); ++i) {
      const std::size_t e = rankings[l][i];
      scores[l][e] = (from - i) * kRankStep + std::min(use.layers[l].uses(e), kRankStep - 1);
    }
  }
  return scores;
}

}  // namespace

std::string_view slot_weighting_name(SlotWeighting weighting) {
  for (const NamedWeighting& w : kWeightings) {
    if (w.weighting == weighting) return w.name;
  }
  return "";
}

Result<SlotWeighting> parse_slot_weighting(std::string_view name) {
  std::string names;
  for (const NamedWeighting& w : kWeightings) {
    if (w.name == name) return w.weighting;
    names += (names.empty() ? "" : ", ") + std::string(w.name);
  }
  return invalid_argument("no weighting is called " + std::string(name) + "; there are " + names);
}

SlotScores slot_scores(const LaneUse& use, SlotWeighting weighting, double curve) {
  if (weighting == SlotWeighting::kFlat) return rank_scores(use, true);
  if (weighting == SlotWeighting::kBalanced) return rank_scores(use, false);
  return weighted_scores(use, weighting, std::clamp(curve, 0.0, 1.0));
}

}  // namespace moepack
