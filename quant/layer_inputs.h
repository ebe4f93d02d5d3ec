// The recorded inputs of one layer, sorted by the expert that received them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/calibration.h"
#include "quant/input_statistics.h"

namespace moepack {

// One token's use of an expert.
struct InputSample {
  std::uint32_t token = 0;
  float weight = 1;  // of its error
};

class LayerInputs {
 public:
  // `activations` outlives the object.
  LayerInputs(const LayerActivations& activations, std::uint32_t num_experts);

  // The tokens that chose an expert, in order; every tenth is held out from the Hessian.
  std::span<const InputSample> training(std::uint32_t expert) const;
  std::span<const InputSample> held_out(std::uint32_t expert) const;
  std::uint64_t samples(std::uint32_t expert) const {
    return training(expert).size() + held_out(expert).size();
  }
  // At most `count` tokens from all over the layer, weight 1; `phase` in [0, 1) moves the choice,
  // so that two choices of different phase share no token as long as the layer has enough.
  std::vector<InputSample> spread(std::size_t count, double phase) const;

  // x: [hidden_size, samples], each column times the square root of its weight. Returns the sum of
  // the weights.
  double gather(std::span<const InputSample> samples, Matrix& x) const;
  std::size_t hidden_size() const { return activations_->hidden_size; }

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t held_out = 0;  // where the held-out samples begin
    std::size_t end = 0;
  };
  const LayerActivations* activations_;
  std::vector<InputSample> samples_;  // by expert: training, then held out
  std::vector<Range> ranges_;
};

}  // namespace moepack
