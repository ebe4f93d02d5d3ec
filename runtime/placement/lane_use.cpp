#include "runtime/placement/lane_use.h"

#include <numeric>

namespace moepack {
namespace {

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

std::uint64_t LayerLanes::hot_uses() const { return sum_of(hot); }
std::uint64_t LayerLanes::cold_uses() const { return sum_of(cold); }

std::string_view lane_fallback_name(LaneFallback reason) {
  switch (reason) {
    case LaneFallback::kNoHotChosen:
      return "zero_output";
    case LaneFallback::kNoColdChosen:
      return "no_cold";
    case LaneFallback::kThreshold:
      return "threshold";
    case LaneFallback::kFetched:
      return "fetched";
  }
  return "";
}

LaneUse empty_lane_use(const ExpertShape& shape, std::uint32_t experts_per_token) {
  LaneUse use{
      .shape = shape, .experts_per_token = experts_per_token, .layers = {}, .fallbacks = {}};
  use.layers.resize(shape.num_layers);
  for (LayerLanes& layer : use.layers) {
    layer.hot.assign(shape.num_experts, 0);
    layer.cold.assign(shape.num_experts, 0);
  }
  return use;
}

LaneUse layers_of(const LaneUse& use, const LayerRange& range) {
  LaneUse part{.shape = {range.count(), use.shape.num_experts},
               .experts_per_token = use.experts_per_token,
               .layers = {use.layers.begin() + range.first, use.layers.begin() + range.end},
               .fallbacks = {}};
  return part;
}

void append_layers(const LaneUse& part, LaneUse& use) {
  use.shape.num_layers += part.shape.num_layers;
  use.layers.insert(use.layers.end(), part.layers.begin(), part.layers.end());
  for (std::size_t i = 0; i < use.fallbacks.size(); ++i) use.fallbacks[i] += part.fallbacks[i];
}

Result<LaneUse> lane_use_of(const ExpertProfile& profile) {
  if (!profile.has_counts()) {
    return unsupported(Where{}, "the profile tells the order of the experts without counts",
                       "record one with moepack profile");
  }
  LaneUse use = empty_lane_use(profile.shape, profile.experts_per_token);
  for (std::size_t l = 0; l < use.layers.size(); ++l) use.layers[l].cold = profile.layers[l].counts;
  return use;
}

}  // namespace moepack
