// Gated full attention with grouped query heads and partial rotary embedding, as Qwen3.5 defines it
// (transformers' Qwen3_5MoeAttention; RoPE: arXiv 2104.09864).
#pragma once

#include <cstddef>
#include <vector>

#include "formats/config/model_config.h"
#include "runtime/model/compute.h"
#include "runtime/model/model_state.h"
#include "runtime/model/model_weights.h"

namespace moepack {

class FullAttention {
 public:
  // Scratch for `max_tokens` tokens a call.
  FullAttention(const ModelConfig& config, std::size_t max_tokens, std::uint64_t context,
                std::size_t threads);

  // out[t] = o_proj(attention(u[t])) for tokens at positions [position, position + tokens), whose
  // keys and values are appended to `state`. u, out: [tokens, H]; out must not be u.
  void forward(Compute& compute, const FullAttentionWeights& weights, LayerState& state,
               std::size_t position, const float* u, std::size_t tokens, float* out);

 private:
  void rotate(float* head, std::size_t position) const;
  void prepare_heads(Compute& compute, const FullAttentionWeights& weights, LayerState& state,
                     std::size_t position, std::size_t tokens);
  void attend(Compute& compute, LayerState& state, std::size_t position, std::size_t token,
              std::size_t head, std::vector<float>& scores);

  ModelConfig config_;
  std::vector<float> inverse_frequency_;    // [rotary_dim / 2]
  std::vector<float> query_gate_;           // [tokens, nq, 2, hd]
  std::vector<float> mixed_;                // [tokens, nq * hd]
  std::vector<std::vector<float>> scores_;  // per worker, [context]
};

}  // namespace moepack
