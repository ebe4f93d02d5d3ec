// Where the experts that a GPU computes with come from: its own memory, the machine's, the disk.
#pragma once

namespace moepack {

// Shares of the uses of experts, together 1.
struct LaneShares {
  double vram = 0;  // are in the GPU's memory
  double ram = 0;   // are not, but in the expert cache
  double ssd = 0;   // are read
};

// `hot_uses`: share of the uses that are of experts in the GPU's memory, known of a profile;
// without one `hot_experts`, as if all experts were used alike. `hot_experts`, `cached_experts`:
// shares of all experts that the GPU's memory and the expert cache hold. Cold experts are taken to
// be used alike, and the cache to hold cold ones alone. Each argument from 0 to 1.
LaneShares predict_lanes(double hot_uses, double hot_experts, double cached_experts);

}  // namespace moepack
