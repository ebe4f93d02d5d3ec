// One step of all running texts: what is computed together, in one forward or several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/schedule/text_run.h"

namespace moepack {

// Counts a forward of so many rows of each kind. Its time belongs to both by their rows, so that
// the rates of prompts and of decoding hold where they share it.
void count_forward(std::uint64_t decoded, std::uint64_t prompt_tokens, double seconds,
                   SchedulerStats& stats);

// Used by the scheduler's thread.
class TextSteps {
 public:
  // `engine` outlives it.
  TextSteps(Engine& engine, const SliceRules& rules) : engine_(engine), rules_(rules) {}

  // A token of each of `decoding`, which are told of it, and slices of the first of `prompts`,
  // which are not yet: the statuses are those of their slices, of one at least where there is any
  // prompt, and of more as long as all together are no longer than one may be. `also`: as of
  // TextRun::prompt_slice(), for the first. Counts into `stats`.
  std::vector<Status> compute(std::span<TextRun* const> decoding, std::span<TextRun* const> prompts,
                              const TextRun::AlsoDraw& also, SchedulerStats& stats);

 private:
  std::vector<Status> compute_mixed(std::span<TextRun* const> decoding,
                                    std::span<TextRun* const> prompts,
                                    const TextRun::AlsoDraw& also, SchedulerStats& stats);
  std::vector<Status> compute_apart(std::span<TextRun* const> decoding,
                                    std::span<TextRun* const> prompts,
                                    const TextRun::AlsoDraw& also, SchedulerStats& stats);
  std::vector<Status> forward(std::vector<Slice> slices, std::span<TextRun* const> prompts,
                              SchedulerStats& stats);

  Engine& engine_;
  const SliceRules rules_;
};

}  // namespace moepack
