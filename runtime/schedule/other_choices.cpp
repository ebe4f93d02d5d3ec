#include "runtime/schedule/other_choices.h"

namespace moepack {

TextRun::AlsoDraw OtherChoices::draw_for(const TextRun& run) {
  drawn_.clear();
  if (!run.place().has_others) return {};
  return [this, &run, group = run.place().group](std::span<const float> logits) -> Status {
    for (std::uint32_t choice = 1; choice < group->listeners.size(); ++choice) {
      MOE_ASSIGN_OR_RETURN(TextSampler sampler,
                           TextSampler::create(group->job, choice, vocab_limit_));
      MOE_ASSIGN_OR_RETURN(TokenStep first, sampler.draw(logits, run.remaining()));
      drawn_.push_back({std::move(sampler), std::move(first)});
    }
    return Status::ok();
  };
}

}  // namespace moepack
