// What GatedDeltaNet does between its projections, in blocks of tokens
// (runtime/model/delta_block.h).
#pragma once

#include <cstddef>
#include <span>

#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/compute.h"
#include "runtime/model/layer_slice.h"
#include "runtime/model/model_weights.h"

namespace moepack {

// Inside the square root of the l2 norm of q and k (transformers' l2norm).
constexpr float kL2Epsilon = 1e-6F;

// One thread at a time calls it, because all calls share one scratch. The key heads of every slice
// are tasks for the threads of `compute`: a key head with its V heads sees no other, from the
// convolution to the gated norm, so they meet only at the end. A token's bits depend on the tokens
// before it and its position alone.
class DeltaNetBlocks {
 public:
  // `scratch` outlives the object.
  DeltaNetBlocks(const ModelConfig& config, Activations& scratch);

  // scratch.delta_mixed of the rows of live slices, from scratch.delta_raw, delta_z, delta_b and
  // delta_a of theirs; moves the states of these slices on. compute.kernels().delta_block is set,
  // and the states are DeltaForm::kBlocks.
  void mix(Compute& compute, const DeltaNetWeights& weights, std::span<const LayerSlice> slices);

 private:
  struct Task;   // a key head of a slice
  struct Block;  // tokens of a slice that lie in one block

  void run(const Task& task) const;
  void convolve(const Task& task, const Block& block, std::size_t channel, std::size_t width,
                float* out) const;
  void make_unit(const Task& task, float factor, float* key) const;
  void prepare_keys(const Task& task, const Block& block) const;
  void mix_head(const Task& task, const Block& block, std::size_t head) const;
  void mix_token(const Task& task, const Block& block, std::size_t head, std::size_t token) const;
  void gate_output(const Task& task, std::size_t head, std::size_t row) const;
  void advance(const Task& task, std::size_t head) const;
  void move_window(const Task& task, std::size_t channel, std::size_t width) const;

  ModelConfig config_;
  Activations& scratch_;
  std::size_t channels_;
};

}  // namespace moepack
