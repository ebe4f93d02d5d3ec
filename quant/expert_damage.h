// What an expert's output loses when its matrices are quantized, by projection and width: measured
// on some rows of each, with the method and the inputs that the real quantization has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/expert_statistics.h"
#include "quant/quantize_matrix.h"

namespace moepack {

struct DamageOptions {
  QuantMethod method = QuantMethod::kGptq;
  std::span<const std::uint32_t> bits;  // widths to measure
  std::size_t group_size = 64;
  std::size_t rows = 64;  // of each matrix; 0: all
};

// Mean squared errors of the expert's output, summed over hidden units, of held-out tokens that
// chose it, each counted by the square of its router weight.
struct ExpertDamage {
  double output = 0;  // of the output itself
  // [gate, up, down][width]: the error with this matrix alone quantized. For gate and up it is what
  // remains when down is fitted to the inputs that it then gets (expert_statistics.h). The errors
  // of the three matrices are independent of each other, so they add up.
  std::array<std::vector<double>, 3> error;
};

// Measures one expert. `inputs` are those of gate and up; `problem` is that of down, for gate and
// up as they are. Both are known, with held-out tokens or without. Pure; any number of threads.
ExpertDamage expert_damage(const ExpertMatrices& weights, const InputStatistics& inputs,
                           const DownProblem& problem, const DamageOptions& options);

}  // namespace moepack
