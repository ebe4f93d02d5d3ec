// Counts by layer and expert that arrive one by one, from a source that may not say how many layers
// and experts there are. The table grows with what it is given, up to kMaxModelExperts counts.
// Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/expert_profile.h"

namespace moepack {

class ExpertCounts {
 public:
  enum class Overflow { kRefuse, kSaturate };

  // Adds `count` to what the expert has; 0 names an expert without using it. Returns what is wrong
  // with the arguments, or "": ids that no model has, or a sum beyond 64 bits unless it saturates.
  std::string_view add(std::uint64_t layer, std::uint64_t expert, std::uint64_t count,
                       Overflow overflow = Overflow::kRefuse);
  bool is_empty() const { return layers_.empty(); }

  // The counts as a profile of `shape`, which is known. kCorrupt with `file` when a layer or expert
  // lies beyond it or a layer's uses exceed 64 bits.
  Result<ExpertProfile> profile(const ExpertShape& shape, std::string_view file) const;

 private:
  std::map<std::uint32_t, std::vector<std::uint64_t>> layers_;  // up to the highest id given
  std::uint64_t held_ = 0;
};

// The shape of the profile in `file`, put together from what the file itself states and what is
// known from elsewhere; 0 stands for a number that is not told. kCorrupt where the two contradict
// each other, kInvalidArgument where neither tells.
Result<ExpertShape> settle_shape(const ExpertShape& stated, const ExpertShape& known,
                                 std::string_view file);

}  // namespace moepack
