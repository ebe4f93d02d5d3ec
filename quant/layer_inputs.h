// The recorded inputs of one layer, sorted by the expert that received them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/calibration/calibration.h"
#include "quant/input_statistics.h"

namespace moepack {

// One token's use of an expert.
struct InputSample {
  std::uint32_t token = 0;
  float weight = 1;  // of its error
};

struct ExpertUse {
  double share = 0;     // of the tokens chose it
  double weight = 0;    // square of its router weight, 0 where it was not chosen
  double one_more = 0;  // what one more use with the layer's usual weight would add to `weight`
};

// Unchanging once it is made: const functions may be called from any number of threads.
class LayerInputs {
 public:
  // `activations` outlives the object.
  LayerInputs(const LayerActivations& activations, std::uint32_t num_experts);

  // The tokens that chose an expert, in order. A tenth of the layer's tokens is held out from all
  // Hessians; it is held out in runs, because neighbouring tokens are alike.
  std::span<const InputSample> training(std::uint32_t expert) const;
  std::span<const InputSample> held_out(std::uint32_t expert) const;
  std::uint64_t samples(std::uint32_t expert) const {
    return training(expert).size() + held_out(expert).size();
  }
  // How much of the layer's output comes from an expert, averaged over all of the layer's tokens.
  ExpertUse use(std::uint32_t expert) const;
  // At most `count` tokens from all over the layer, weight 1, whichever expert they chose.
  std::vector<InputSample> layer_training(std::size_t count) const;
  std::vector<InputSample> layer_held_out(std::size_t count) const;

  // Fills x, [hidden_size, samples], with the inputs, each column times the square root of its
  // weight. Returns the sum of the weights.
  double gather(std::span<const InputSample> samples, Matrix& x) const;
  std::size_t hidden_size() const { return activations_->hidden_size; }

 private:
  static constexpr std::uint64_t kRuns = 10;  // one of so many is held out
  bool is_held_out(std::uint64_t token) const { return token / run_ % kRuns == kRuns - 1; }
  std::vector<InputSample> spread(std::size_t count, bool held_out) const;

  struct Range {
    std::size_t begin = 0;
    std::size_t held_out = 0;  // where the held-out samples begin
    std::size_t end = 0;
  };
  const LayerActivations* activations_;
  double mean_weight_ = 0;            // of all uses
  std::uint64_t run_;                 // tokens of a run
  std::vector<InputSample> samples_;  // by expert: training, then held out
  std::vector<Range> ranges_;
};

}  // namespace moepack
