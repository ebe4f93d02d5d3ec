// Rows of the families' tables that several of them share: shapes in terms of a configuration, and
// names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/config/architecture.h"

namespace moepack {

using ModuleShape = std::vector<std::uint64_t>;

inline constexpr LayerScope kOfModel = LayerScope::kModel;
inline constexpr LayerScope kOfEvery = LayerScope::kEveryLayer;
inline constexpr LayerScope kOfLinear = LayerScope::kLinearAttention;
inline constexpr LayerScope kOfFull = LayerScope::kFullAttention;
inline constexpr LayerScope kOfLatent = LayerScope::kLatentAttention;
inline constexpr LayerScope kOfExperts = LayerScope::kExperts;
inline constexpr LayerScope kOfDense = LayerScope::kDense;
inline constexpr Rounding kNever = Rounding::kNever;
inline constexpr Rounding kAtLeast8 = Rounding::kAtLeast8;
inline constexpr Rounding kAsAsked = Rounding::kAsAsked;

namespace shapes {

// Rows of all heads together.
inline std::uint64_t query_rows(const ModelConfig& c) {
  return std::uint64_t{c.num_heads} * c.head_dim;
}
inline std::uint64_t kv_rows(const ModelConfig& c) {
  return std::uint64_t{c.num_kv_heads} * c.head_dim;
}

inline ModuleShape hidden(const ModelConfig& c) { return {c.hidden_size}; }
inline ModuleShape vocabulary(const ModelConfig& c) { return {c.vocab_size, c.hidden_size}; }
inline ModuleShape router(const ModelConfig& c) { return {c.num_experts, c.hidden_size}; }

inline ModuleShape experts(const ModelConfig& c) { return {c.num_experts}; }
inline ModuleShape shared_inner(const ModelConfig& c) {
  return {c.shared_expert_width, c.hidden_size};
}
inline ModuleShape shared_outer(const ModelConfig& c) {
  return {c.hidden_size, c.shared_expert_width};
}
inline ModuleShape dense_inner(const ModelConfig& c) { return {c.dense_width, c.hidden_size}; }
inline ModuleShape dense_outer(const ModelConfig& c) { return {c.hidden_size, c.dense_width}; }

inline ModuleShape queries(const ModelConfig& c) { return {query_rows(c), c.hidden_size}; }
inline ModuleShape keys(const ModelConfig& c) { return {kv_rows(c), c.hidden_size}; }
inline ModuleShape attention_output(const ModelConfig& c) { return {c.hidden_size, query_rows(c)}; }
inline ModuleShape head(const ModelConfig& c) { return {c.head_dim}; }
// What the layers with full attention are, which have all the same parts.
inline FullAttentionSpec attention_of(const ModelConfig& c) {
  for (const LayerSpec& layer : c.layers) {
    if (const auto* spec = std::get_if<FullAttentionSpec>(&layer.mixer)) return *spec;
  }
  return {};
}
// Of norms of queries and keys that the configuration may leave out.
inline ModuleShape optional_head(const ModelConfig& c) {
  return {attention_of(c).norm == QueryKeyNorm::kNone ? 0U : c.head_dim};
}
// Of biases that it may leave out.
inline ModuleShape query_bias(const ModelConfig& c) {
  return {attention_of(c).has_bias ? query_rows(c) : 0U};
}
inline ModuleShape key_bias(const ModelConfig& c) {
  return {attention_of(c).has_bias ? kv_rows(c) : 0U};
}
inline ModuleShape all_query_heads(const ModelConfig& c) { return {query_rows(c)}; }
inline ModuleShape all_key_heads(const ModelConfig& c) { return {kv_rows(c)}; }

}  // namespace shapes

// Modules that families have under the same names.
namespace rows {

inline constexpr ResidentRule kEmbeddingRow{
    ModuleRole::kEmbedding, "model.embed_tokens", kOfModel, shapes::vocabulary, kAsAsked, true,
    "token_embd.weight"};
inline constexpr ResidentRule kFinalNormRow{ModuleRole::kFinalNorm, "model.norm", kOfModel,
                                            shapes::hidden,         kNever,       true,
                                            "output_norm.weight"};
inline constexpr ResidentRule kOutputHeadRow{ModuleRole::kOutputHead, "lm_head", kOfModel,
                                             shapes::vocabulary,      kAsAsked,  true,
                                             "output.weight"};
inline constexpr ResidentRule kInputNormRow{
    ModuleRole::kInputNorm, "input_layernorm", kOfEvery, shapes::hidden, kNever, true,
    "attn_norm.weight"};
inline constexpr ResidentRule kPostNormRow{
    ModuleRole::kPostNorm, "post_attention_layernorm", kOfEvery, shapes::hidden, kNever, true,
    "ffn_norm.weight"};
// In llama.cpp's qwen35moe, qwen3next, glm4moe and gpt-oss.
inline constexpr ResidentRule kPostNormAfterAttentionRow{
    ModuleRole::kPostNorm,       "post_attention_layernorm", kOfEvery, shapes::hidden, kNever, true,
    "post_attention_norm.weight"};
inline constexpr ResidentRule kRouterRow{ModuleRole::kRouter,  "mlp.gate", kOfEvery,
                                         shapes::router,       kAtLeast8,  true,
                                         "ffn_gate_inp.weight"};
inline constexpr ResidentRule kBlockSparseRouterRow{
    ModuleRole::kRouter,  "block_sparse_moe.gate", kOfEvery, shapes::router, kAtLeast8, true,
    "ffn_gate_inp.weight"};
inline constexpr ResidentRule kQueryRow{ModuleRole::kQuery, "self_attn.q_proj", kOfFull,
                                        shapes::queries,    kAsAsked,           true,
                                        "attn_q.weight"};
inline constexpr ResidentRule kKeyRow{
    ModuleRole::kKey, "self_attn.k_proj", kOfFull, shapes::keys, kAsAsked, true, "attn_k.weight"};
inline constexpr ResidentRule kValueRow{
    ModuleRole::kValue, "self_attn.v_proj", kOfFull, shapes::keys, kAsAsked, true, "attn_v.weight"};
inline constexpr ResidentRule kAttentionOutputRow{
    ModuleRole::kAttentionOutput, "self_attn.o_proj", kOfFull,
    shapes::attention_output,     kAsAsked,           true,
    "attn_output.weight"};
inline constexpr ResidentRule kHeadQueryNormRow{
    ModuleRole::kQueryNorm, "self_attn.q_norm", kOfFull, shapes::head, kNever, true,
    "attn_q_norm.weight"};
inline constexpr ResidentRule kHeadKeyNormRow{
    ModuleRole::kKeyNorm, "self_attn.k_norm", kOfFull, shapes::head, kNever, true,
    "attn_k_norm.weight"};
inline constexpr ResidentRule kWholeQueryNormRow{
    ModuleRole::kQueryNorm, "self_attn.q_norm", kOfFull, shapes::all_query_heads, kNever, true,
    "attn_q_norm.weight"};
inline constexpr ResidentRule kWholeKeyNormRow{
    ModuleRole::kKeyNorm, "self_attn.k_norm", kOfFull, shapes::all_key_heads, kNever, true,
    "attn_k_norm.weight"};

}  // namespace rows

// Prefixes in checkpoints without a wrapper, HuggingFace's and mlx-lm's.
inline constexpr std::array<PrefixRule, 2> kTextModelPrefixes{{
    {"model.", "model."},
    {"lm_head", "lm_head"},
}};

inline constexpr ExpertNames kMlpExperts{
    .folder = "mlp.experts.",
    .stacked = "mlp.switch_mlp.",
    .matrices = {"gate_proj", "up_proj", "down_proj", "gate_up_proj"},
    .gguf = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
             "ffn_gate_up_exps.weight"},
    .stacked_matrices = {"gate_proj", "up_proj", "down_proj", "gate_up_proj"},
};

// Mixtral's, and those that follow it.
inline constexpr ExpertNames kBlockSparseExperts{
    .folder = "block_sparse_moe.experts.",
    .stacked = "block_sparse_moe.switch_mlp.",
    .matrices = {"w1", "w3", "w2", "w1w3"},
    .gguf = kMlpExperts.gguf,
    .stacked_matrices = kMlpExperts.matrices,
};

}  // namespace moepack
