// Which dispatches of a list wait for others by counters, and where a barrier must be all the same:
// the book-keeping behind CommandList's ordered lists. It touches no device.
//
// What is recorded between two barriers is a stage. An ordered program (shaders/stage_order.glsl)
// waits until the counter of the stage before is at zero and takes one from its own when it is
// done, each work group for itself; counters start with the work groups of their stage. A barrier
// remains before and behind what is not such a program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shaders/stage_args.h"

namespace moepack {

class StageOrder {
 public:
  // Stages of a list; those beyond have barriers.
  static constexpr std::uint32_t kMostStages = 2048;
  static constexpr std::uint64_t kBytes = std::uint64_t{kMostStages} * MOE_STAGE_BYTES;

  // How many stages back ordered programs look at most.
  static constexpr std::uint32_t kStagesSeen = 5;

  // What follows depends on all that was recorded.
  void end_stage() { is_ended_ = true; }
  // Whether a barrier has to be recorded before a dispatch, of an ordered program or another.
  bool needs_barrier(bool is_ordered) const;
  // A barrier was recorded.
  void note_barrier();
  // A dispatch of an ordered program: the stage whose counter it has; of another. Neither is called
  // where needs_barrier() says so and none was recorded.
  std::uint32_t add(std::uint64_t groups);
  void add_unordered() { is_mixed_ = true; }

  // What each stage's counter starts with; 0 of those that are not there.
  std::span<const std::uint32_t> counts() const { return counts_; }

 private:
  std::uint32_t stage_ = kStagesSeen;  // behind a barrier the stages before have nothing left
  bool is_ended_ = false;              // the next dispatch belongs to the next stage
  bool is_mixed_ = false;              // the stage has a dispatch that counts nothing
  bool is_waiting_ = false;            // stages since the last barrier wait for others by counters
  std::vector<std::uint32_t> counts_ = std::vector<std::uint32_t>(kMostStages);
};

}  // namespace moepack
