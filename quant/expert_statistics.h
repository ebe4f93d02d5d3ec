// The input statistics of one expert's three matrices, from the recorded inputs of its layer. The
// functions only read their arguments, and may be called from any number of threads.
#pragma once

#include <functional>

#include "formats/config/layer_spec.h"
#include "quant/layer_inputs.h"

namespace moepack {

// One expert's weights as float32; rows padded to whole tiles (quant/tile.h).
struct ExpertMatrices {
  std::size_t width = 0;
  Matrix gate;                                              // [padded width, hidden]
  Matrix up;                                                // [padded width, hidden]
  Matrix down;                                              // [padded hidden, width]
  ExpertActivation activation = ExpertActivation::kSwiGlu;  // not kClampedSwiGlu
};

// Runs work(i) for every i < count, in any order and from any threads.
using ParallelFor =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& work)>;

// What the Hessians of gate and up lean on: the mean of x x^T over tokens from all over the layer.
struct LayerHessian {
  Matrix mean;         // upper triangle
  double samples = 0;  // tokens
};

// Takes at most `tokens` tokens of the layer. `parallel` shares out panels of columns among
// threads; the result does not depend on how it does that.
LayerHessian layer_hessian(const LayerInputs& inputs, std::size_t tokens,
                           const ParallelFor& parallel);

// The statistics of gate and up, which read the same inputs.
InputStatistics gate_up_statistics(const LayerInputs& inputs, const LayerHessian& layer,
                                   std::uint32_t expert);

// What down is to be quantized for.
struct DownProblem {
  InputStatistics inputs;  // that the stored gate and up give
  // [padded hidden, width]: the weights that come nearest, for these inputs, to what the original
  // expert gives; quantizing them makes up for a part of what gate and up have lost.
  Matrix target;
};

// `stored_gate` and `stored_up` are gate and up as they will be read, in the shapes of `weights`.
// Both the Hessian and the target lean on what this expert makes of tokens from all over the layer,
// for the hidden units of different experts have nothing in common.
// Source: the asymmetric target of GPTAQ (arXiv 2504.02692), within one expert.
DownProblem down_problem(const LayerInputs& inputs, const ExpertMatrices& weights,
                         const Matrix& stored_gate, const Matrix& stored_up, std::uint32_t expert);

}  // namespace moepack
