#include "runtime/advice/lane_shares.h"

#include <algorithm>

namespace moepack {

LaneShares predict_lanes(double hot_uses, double hot_experts, double cached_experts) {
  const double cold_experts = 1 - hot_experts;
  if (cold_experts <= 0) return {.vram = 1, .ram = 0, .ssd = 0};
  const double cached = std::min(1.0, cached_experts / cold_experts);
  const double cold_uses = 1 - hot_uses;
  return {.vram = hot_uses, .ram = cold_uses * cached, .ssd = cold_uses * (1 - cached)};
}

}  // namespace moepack
