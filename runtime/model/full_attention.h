// Full attention with grouped query heads and rotary embedding of all or some of a head's values
// (arXiv 2104.09864). What families do differently with queries, keys and the output is the layer's
// FullAttentionSpec: transformers' Qwen3_5MoeAttention, Qwen3MoeAttention, OlmoeAttention,
// GptOssAttention, Gemma4TextAttention.
//
// With kernels of attention it is computed over blocks of encoded keys and values
// (block_attention.h); without, in the reference backend, over all positions at once.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/block_attention.h"
#include "runtime/model/compute.h"
#include "runtime/model/layer_slice.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/rope.h"

namespace moepack {

// One thread at a time calls it, because all calls share one scratch; the work is shared among the
// threads of `compute`.
class FullAttention {
 public:
  // `scratch` outlives the object.
  FullAttention(const ModelConfig& config, Activations& scratch);

  // out[t] = o_proj(attention(u[t])) for all rows of a batch; each slice sees its own sequence, to
  // whose state its keys and values are appended. A slice whose state finds no memory gets the
  // error in its status, and its rows of `out` are undefined like those of no slice. u, out:
  // [tokens, H]; out must not be u.
  void forward(Compute& compute, const FullAttentionWeights& weights,
               std::span<const LayerSlice> slices, const float* u, std::size_t tokens, float* out);

 private:
  // What layers with the same heads have in common.
  struct Kind {
    Kind(const ModelConfig& config, const HeadSizes& sizes, Activations& scratch)
        : heads(sizes), blocks(full_attention_shape(sizes), scratch), rope(config, sizes) {}

    std::size_t kv_width() const { return std::size_t{heads.kv_heads} * heads.head_dim; }

    HeadSizes heads;
    BlockAttention blocks;
    Rope rope;
  };
  // A layer as the functions below take it.
  struct Layer {
    Kind& kind;
    const FullAttentionWeights& weights;
    std::size_t query_stride;  // values of a query head, with its gate where there is one
    float score_scale;
  };
  Layer layer_of(const FullAttentionWeights& weights);

  void prepare(Compute& compute, const Layer& layer, std::span<const float> factor,
               std::span<const float> rotation, std::size_t heads, std::size_t stride,
               float* first) const;
  void prepare_values(Compute& compute, const Layer& layer, std::size_t row);
  void prepare_token(Compute& compute, const Layer& layer, std::size_t position, std::size_t row,
                     std::span<float> rotation);
  void prepare_heads(Compute& compute, const Layer& layer, std::span<const LayerSlice> slices,
                     std::size_t tokens);
  void store(const Kind& kind, std::span<const LayerSlice> slices);
  void attend(const Kernels& kernels, const Layer& layer, const LayerSlice& slice, std::size_t row,
              std::size_t head, float* scores);
  void attend_rows(Compute& compute, const Layer& layer, std::span<const LayerSlice> slices,
                   std::size_t tokens);

  ModelConfig config_;
  Activations& scratch_;
  std::vector<Kind> kinds_;  // of ModelConfig::head_kinds()
  std::vector<float> ones_;  // the factor of norms that have none: of the largest head
};

}  // namespace moepack
