// What an engine is asked for about the experts that lie in device memory for good, where the
// processor computes the others.
#pragma once

#include <filesystem>

#include "runtime/placement/slot_weighting.h"

namespace moepack {

struct HotOptions {
  // Of expert use, in any format that read_profile_input() knows: the experts worth most by
  // `weighting` are hot. Empty: flat_hot_set().
  std::filesystem::path profile = {};
  SlotWeighting weighting = SlotWeighting::kFlat;
  // Share of the hot experts, 0 to 1, that Engine::adapt_hot_experts() exchanges at most. Above 0
  // uses are counted.
  double update_rate = 0;
  bool counts = false;                // uses and lane times are counted for Engine::lane_use()
  std::filesystem::path report = {};  // written by Engine::finish(): lane_report_text(); it counts

  bool is_counting() const { return counts || update_rate > 0 || !report.empty(); }
};

}  // namespace moepack
