// The choices of a prompt besides the first, between its last token and their own runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/schedule/text_run.h"
#include "runtime/schedule/text_sampler.h"

namespace moepack {

// What a choice drew behind the prompt.
struct OtherChoice {
  TextSampler sampler;
  TokenStep first;
};

// Used by the scheduler's thread, for one prompt at a time.
class OtherChoices {
 public:
  explicit OtherChoices(std::size_t vocab_limit) : vocab_limit_(vocab_limit) {}

  // Forgets those before. Draws the first token of the run's other choices from the logits of its
  // prompt's last token; empty where it has none. Valid as long as both.
  TextRun::AlsoDraw draw_for(const TextRun& run);
  // Those drawn, from choice 1 on; empty where nothing is drawn behind the prompt.
  std::vector<OtherChoice> take() { return std::exchange(drawn_, {}); }

 private:
  const std::size_t vocab_limit_;
  std::vector<OtherChoice> drawn_;
};

}  // namespace moepack
