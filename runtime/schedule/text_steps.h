// One step of all running texts: what is computed together, in one forward or several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/schedule/text_run.h"

namespace moepack {

// Used by the scheduler's thread.
class TextSteps {
 public:
  // `engine` outlives it.
  TextSteps(Engine& engine, const SliceRules& rules) : engine_(engine), rules_(rules) {}

  // A token of each of `decoding`, which are told of it, and a slice of `prompt`, which is not yet:
  // the status is that of its slice. null: there is none. `also`: as of TextRun::prompt_slice().
  // Counts into `stats`.
  Status compute(std::span<TextRun* const> decoding, TextRun* prompt, const TextRun::AlsoDraw& also,
                 SchedulerStats& stats);

 private:
  Status compute_mixed(std::span<TextRun* const> decoding, TextRun* prompt,
                       const TextRun::AlsoDraw& also, SchedulerStats& stats);
  Status compute_apart(std::span<TextRun* const> decoding, TextRun* prompt,
                       const TextRun::AlsoDraw& also, SchedulerStats& stats);
  std::vector<Status> forward(std::vector<Slice> slices, const TextRun* prompt,
                              SchedulerStats& stats);

  Engine& engine_;
  const SliceRules rules_;
};

}  // namespace moepack
