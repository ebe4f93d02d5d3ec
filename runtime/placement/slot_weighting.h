// How much it is worth to have an expert in the GPU's memory: scores by layer and expert, from what
// the lanes did. Formulas: the hot cache of llama.cpp's fork (its documentation), which measured
// that an even spread over the layers ("flat") is the safest when a workload is not the profiled
// one.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/placement/lane_use.h"

namespace moepack {

enum class SlotWeighting : std::uint8_t {
  kFlat,      // by rank within the layer, then uses: all layers get about as many slots
  kPressure,  // uses, more for layers whose cold lane holds the hot one up
  kSmooth,    // the same between the 10th and 90th percentile, by a square root
  kTime,      // uses, more for layers that take longer
  kBalanced,  // as flat, ranks counted from the end of the layer's own used experts
};
// "flat", "pressure", "smooth", "time", "balanced".
std::string_view slot_weighting_name(SlotWeighting weighting);
// kInvalidArgument with the list of names.
Result<SlotWeighting> parse_slot_weighting(std::string_view name);

constexpr double kDefaultLayerCurve = 0.5;

// Scores of the experts of each layer; 0: never used, and not worth a slot.
using SlotScores = std::vector<std::vector<std::uint64_t>>;

// `curve` in [0, 1]: how far layers may differ under kPressure, kSmooth and kTime. A pure function:
// equal uses give equal scores on every machine.
SlotScores slot_scores(const LaneUse& use, SlotWeighting weighting,
                       double curve = kDefaultLayerCurve);

}  // namespace moepack
