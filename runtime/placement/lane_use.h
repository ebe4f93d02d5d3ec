// What the two lanes of a layer did: which of the chosen experts lay in the GPU's memory (hot) and
// which did not (cold), and how long each lane took. The numbers that a placement of experts is
// chosen by.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/expert_profile.h"
#include "runtime/placement/layer_split.h"

namespace moepack {

// Sums over the calls of a layer, in microseconds.
struct LaneMicroseconds {
  double hot = 0;        // from the start of the hot lane to its end
  double cold = 0;       // the same of the cold lane
  double join_wait = 0;  // that one lane waited for the other
  double total = 0;      // of the layer's experts, both lanes and the join
};

struct LayerLanes {
  std::uint64_t calls = 0;  // passes through the layer, of any number of tokens
  // [num_experts]: tokens that chose the expert while it was hot, and while it was cold. Both of
  // one length.
  std::vector<std::uint64_t> hot;
  std::vector<std::uint64_t> cold;
  LaneMicroseconds times;

  std::uint64_t hot_uses() const;
  std::uint64_t cold_uses() const;
  std::uint64_t uses(std::size_t expert) const { return hot[expert] + cold[expert]; }
  std::uint64_t all_uses() const { return hot_uses() + cold_uses(); }
};

// Why a call ran in one lane alone though experts were hot.
enum class LaneFallback : std::uint8_t {
  kNoHotChosen,   // no chosen expert was hot
  kNoColdChosen,  // all were
  kThreshold,     // so few that a lane of their own does not pay
  kFetched,       // a prompt: cold experts were brought to the GPU instead
};
constexpr std::size_t kNumLaneFallbacks = 4;
// "zero_output", "no_cold", "threshold", "fetched".
std::string_view lane_fallback_name(LaneFallback reason);

struct LaneUse {
  ExpertShape shape;
  std::uint32_t experts_per_token = 0;                          // 0: unknown
  std::vector<LayerLanes> layers;                               // [num_layers]
  std::array<std::uint64_t, kNumLaneFallbacks> fallbacks = {};  // by LaneFallback
};

// Nothing used yet.
LaneUse empty_lane_use(const ExpertShape& shape, std::uint32_t experts_per_token);
// Of these layers alone, numbered from 0; without the fallbacks, which are of no layer.
LaneUse layers_of(const LaneUse& use, const LayerRange& range);
// The layers of `part` behind those of `use`, and its fallbacks; both of equally many experts.
void append_layers(const LaneUse& part, LaneUse& use);
// The counts of a profile as uses of cold experts. kUnsupported for ranks without counts.
Result<LaneUse> lane_use_of(const ExpertProfile& profile);

}  // namespace moepack
