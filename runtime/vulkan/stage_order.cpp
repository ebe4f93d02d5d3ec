#include "runtime/vulkan/stage_order.h"

namespace moepack {

bool StageOrder::needs_barrier(bool is_ordered) const {
  if (!is_ordered) return is_ended_ || is_waiting_;
  if (!is_ended_) return false;
  return is_mixed_ || stage_ + 1 >= kMostStages;
}

void StageOrder::note_barrier() {
  // The last stage has a barrier on either side, however often it is used: nothing waits for it.
  stage_ = stage_ + 1 + kStagesSeen < kMostStages ? stage_ + 1 + kStagesSeen : kMostStages - 1;
  is_ended_ = is_mixed_ = is_waiting_ = false;
}

std::uint32_t StageOrder::add(std::uint64_t groups) {
  if (is_ended_) {
    ++stage_;
    is_ended_ = false;
    is_waiting_ = true;
  }
  counts_[stage_] += static_cast<std::uint32_t>(groups);
  return stage_;
}

}  // namespace moepack
