// GatedDeltaNet, the linear attention of Qwen3.5 (arXiv 2412.06464; transformers'
// torch_recurrent_gated_delta_rule with use_qk_l2norm_in_kernel).
#pragma once

#include <cstddef>
#include <vector>

#include "formats/config/model_config.h"
#include "runtime/model/compute.h"
#include "runtime/model/model_state.h"
#include "runtime/model/model_weights.h"

namespace moepack {

class DeltaNet {
 public:
  // Scratch for `max_tokens` tokens a call.
  DeltaNet(const ModelConfig& config, std::size_t max_tokens);

  // out[t] = out_proj(delta_net(u[t])), advancing `state` by `tokens`. u, out: [tokens, H]; out
  // must not be u.
  void forward(Compute& compute, const DeltaNetWeights& weights, LayerState& state, const float* u,
               std::size_t tokens, float* out);

 private:
  void convolve(Compute& compute, const DeltaNetWeights& weights, LayerState& state,
                std::size_t tokens);
  void normalise_keys(Compute& compute, std::size_t tokens);
  void recur(Compute& compute, const DeltaNetWeights& weights, LayerState& state,
             std::size_t tokens);
  void gate_output(Compute& compute, const DeltaNetWeights& weights, std::size_t tokens);

  ModelConfig config_;
  std::size_t channels_;
  std::vector<float> raw_;    // [taps - 1 + tokens, channels]: the conv's window, then new inputs
  std::vector<float> qkv_;    // [tokens, channels]: after convolution and silu
  std::vector<float> z_;      // [tokens, nv * dv]
  std::vector<float> b_;      // [tokens, nv]
  std::vector<float> a_;      // [tokens, nv]
  std::vector<float> mixed_;  // [tokens, nv * dv]
};

}  // namespace moepack
