// Qwen3-Next: as Qwen3.5-MoE but for two projections of GatedDeltaNet, of which each holds two of
// the others, K head by K head: [q, k, v of its V heads, z of these] and [b, a of its V heads].
// Defaults: those of transformers' configuration class, which are the published 80B-A3B.
#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"
#include "formats/config/family_qwen3_5_moe.h"

namespace moepack {
namespace {

constexpr GatedDeltaDefaults kQwen3NextDefaults{151936, 48, 32768, 512, 10, 1e4};

Status read_qwen3_next_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.require_flag("norm_topk_prob", true));
  return read_gated_delta_config(text, kQwen3NextDefaults, model);
}

std::uint64_t values_of_key(const ModelConfig& c) {
  return c.linear_value_heads / c.linear_key_heads * std::uint64_t{c.linear_value_dim};
}
std::uint64_t qkvz_of_key(const ModelConfig& c) {
  return 2 * std::uint64_t{c.linear_key_dim} + 2 * values_of_key(c);
}
ModuleShape qkvz_shape(const ModelConfig& c) {
  return {c.linear_key_heads * qkvz_of_key(c), c.hidden_size};
}
ModuleShape ba_shape(const ModelConfig& c) {
  return {2 * std::uint64_t{c.linear_value_heads}, c.hidden_size};
}

RowRuns qkv_rows(const ModelConfig& c) {
  const std::uint64_t dk = c.linear_key_dim;
  const std::uint64_t heads = c.linear_key_heads;
  return {{0, dk, qkvz_of_key(c), heads},
          {dk, dk, qkvz_of_key(c), heads},
          {2 * dk, values_of_key(c), qkvz_of_key(c), heads}};
}
RowRuns z_rows(const ModelConfig& c) {
  return {{2 * std::uint64_t{c.linear_key_dim} + values_of_key(c), values_of_key(c), qkvz_of_key(c),
           c.linear_key_heads}};
}
RowRuns beta_rows(const ModelConfig& c) {
  const std::uint64_t ratio = c.linear_value_heads / c.linear_key_heads;
  return {{0, ratio, 2 * ratio, c.linear_key_heads}};
}
RowRuns alpha_rows(const ModelConfig& c) {
  const std::uint64_t ratio = c.linear_value_heads / c.linear_key_heads;
  return {{ratio, ratio, 2 * ratio, c.linear_key_heads}};
}

constexpr std::array<FusedRule, 2> kQwen3NextFused{{
    {.name = "linear_attn.in_proj_qkvz",
     .gguf_name = "ssm_in.weight",
     .usual_in_gguf = false,
     .shape = qkvz_shape,
     .parts = {{{ModuleRole::kDeltaQkv, qkv_rows}, {ModuleRole::kDeltaZ, z_rows}}}},
    {.name = "linear_attn.in_proj_ba",
     .gguf_name = "ssm_ba.weight",
     .usual_in_gguf = true,
     .shape = ba_shape,
     .parts = {{{ModuleRole::kDeltaBeta, beta_rows}, {ModuleRole::kDeltaAlpha, alpha_rows}}}},
}};

}  // namespace

constinit const Architecture kQwen3NextFamily{
    .wrapper_type = "qwen3_next",
    .text_model_type = "qwen3_next",
    .model_class = "Qwen3NextForCausalLM",
    .read_config = read_qwen3_next_config,
    .norms = NormSource::kToldByConv1d,
    .gguf_architecture = "qwen3next",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .exports_gguf = true,
    .runs_in_flashmoe = true,
    .prefixes = kGatedDeltaPrefixes,
    .skipped = kGatedDeltaSkipped,
    .residents = kGatedDeltaResidents,
    .fused = kQwen3NextFused,
    .experts = &kMlpExperts,
    .prediction = kGatedDeltaPrediction,
};

}  // namespace moepack
