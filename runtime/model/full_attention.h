// Full attention with grouped query heads and rotary embedding of all or some of a head's values
// (arXiv 2104.09864). What families do differently with queries, keys and the output is the layer's
// FullAttentionSpec: transformers' Qwen3_5MoeAttention, Qwen3MoeAttention, OlmoeAttention.
#pragma once

#include <cstddef>
#include <span>
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
  // Values of a query head, with its gate where there is one.
  std::size_t query_stride(const FullAttentionSpec& spec) const {
    return std::size_t{spec.has_gate ? 2U : 1U} * config_.head_dim;
  }
  void rotate(float* head, std::size_t position) const;
  void prepare(Compute& compute, const FullAttentionSpec& spec, std::span<const float> factor,
               std::size_t position, std::size_t heads, std::size_t stride, float* first) const;
  void prepare_heads(Compute& compute, const FullAttentionWeights& weights, LayerState& state,
                     std::size_t position, std::size_t tokens);
  void attend(Compute& compute, const FullAttentionSpec& spec, LayerState& state,
              std::size_t position, std::size_t token, std::size_t head,
              std::vector<float>& scores);

  ModelConfig config_;
  std::vector<float> inverse_frequency_;    // [rotary_dim / 2]
  std::vector<float> query_gate_;           // [tokens, nq, 2, hd]; [tokens, nq, hd] without gates
  std::vector<float> mixed_;                // [tokens, nq * hd]
  std::vector<std::vector<float>> scores_;  // per worker, [context]
};

}  // namespace moepack
