// GatedDeltaNet, the linear attention of Qwen3.5 (arXiv 2412.06464; transformers'
// torch_recurrent_gated_delta_rule with use_qk_l2norm_in_kernel): token by token, or in blocks
// where the kernels know that form.
#pragma once

#include <cstddef>
#include <span>

#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/compute.h"
#include "runtime/model/delta_net_blocks.h"
#include "runtime/model/layer_slice.h"
#include "runtime/model/model_weights.h"

namespace moepack {

// One thread at a time calls it, because all calls share one scratch; the work is shared among the
// threads of `compute`.
class DeltaNet {
 public:
  // `scratch` outlives the object.
  DeltaNet(const ModelConfig& config, Activations& scratch);

  // out[t] = out_proj(delta_net(u[t])) for all rows of a batch; each live slice moves its own state
  // on. Rows of no live slice are undefined. u, out: [tokens, H]; out must not be u.
  void forward(Compute& compute, const DeltaNetWeights& weights, std::span<const LayerSlice> slices,
               const float* u, std::size_t tokens, float* out);

 private:
  void mix_by_tokens(Compute& compute, const DeltaNetWeights& weights,
                     std::span<const LayerSlice> slices, std::size_t tokens);
  void convolve(Compute& compute, const DeltaNetWeights& weights,
                std::span<const LayerSlice> slices, std::size_t tokens);
  void move_window(const LayerSlice& slice);
  void normalise_keys(Compute& compute, std::size_t tokens);
  void recur(Compute& compute, const DeltaNetWeights& weights, std::span<const LayerSlice> slices);
  void recur_head(const Kernels& kernels, const DeltaNetWeights& weights, const LayerSlice& slice,
                  std::size_t head);
  void gate_output(Compute& compute, const DeltaNetWeights& weights, std::size_t tokens);

  ModelConfig config_;
  Activations& scratch_;
  std::size_t channels_;
  DeltaNetBlocks blocks_;
};

}  // namespace moepack
