// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1; transformers'
// DeepseekV3Attention). Of a token one compressed row is remembered, R = kv_rank values after their
// norm, and one rotated key of rotary_dim values; both serve all heads.
//
// kv_b_proj, which would make every head's keys and values of that row, is never applied to what is
// remembered. It is absorbed (section 2.1.2 there, appendix): a query goes through its head's key
// rows, so that it meets the compressed rows themselves, and the sum of compressed rows that it
// attends to goes through its head's value rows. Prompts are computed the same way, so a token's
// result does not depend on how many are computed together.
#pragma once

#include <cstddef>
#include <span>

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
class LatentAttention {
 public:
  // `scratch` outlives the object.
  LatentAttention(const ModelConfig& config, Activations& scratch);

  // out[t] = o_proj(attention(u[t])) for all rows of a batch; each slice sees its own sequence, to
  // whose state its compressed rows are appended. A slice whose state finds no memory gets the
  // error in its status, and its rows of `out` are undefined like those of no slice. u, out:
  // [tokens, H]; out must not be u.
  void forward(Compute& compute, const LatentAttentionWeights& weights,
               std::span<const LayerSlice> slices, const float* u, std::size_t tokens, float* out);

 private:
  // Values of a head that are not rotated.
  std::size_t plain_dim() const { return std::size_t{config_.head_dim} - config_.rotary_dim; }
  // Rows of a head in kv_b_proj: of its key, then of its value.
  std::size_t head_rows() const { return plain_dim() + config_.value_dim; }
  // The query that meets the compressed rows.
  float* latent_query(std::size_t row, std::size_t head) const {
    return scratch_.latent_queries.data() + (row * config_.num_heads + head) * shape_.key_dim;
  }

  void project(Compute& compute, const LatentAttentionWeights& weights, const float* u,
               std::size_t tokens);
  void prepare_token(Compute& compute, const LatentAttentionWeights& weights, std::size_t position,
                     std::size_t row, std::span<float> rotation);
  void prepare(Compute& compute, const LatentAttentionWeights& weights,
               std::span<const LayerSlice> slices, std::size_t tokens);
  void store(std::span<const LayerSlice> slices);
  void absorb_head(const Kernels& kernels, const QMatrixView& kv_up, std::size_t head,
                   std::size_t tokens, std::span<float> rows);
  void absorb(Compute& compute, const QMatrixView& kv_up, std::size_t tokens);
  void attend_row(const Kernels& kernels, const LayerSlice& slice, std::size_t row,
                  std::size_t head, float* scores);
  void attend(Compute& compute, std::span<const LayerSlice> slices, std::size_t tokens);
  void expand_head(Compute& compute, const QMatrixView& kv_up, std::size_t head, std::size_t tokens,
                   std::size_t worker);
  void expand(Compute& compute, const QMatrixView& kv_up, std::size_t tokens);

  ModelConfig config_;
  Activations& scratch_;
  AttentionShape shape_;
  BlockAttention blocks_;
  Rope rope_;
  float scale_ = 1;  // of the softmax
};

}  // namespace moepack
