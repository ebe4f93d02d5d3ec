// Qwen3.5 and Qwen3.6 MoE: transformers' qwen3_5_moe, its published wrapper, and mlx-lm's form.
// Layers of GatedDeltaNet and of gated full attention, softmax routing, a gated shared expert.
// Defaults: those of transformers' configuration class, which are the published 35B-A3B.
#include "formats/config/family_qwen3_5_moe.h"

#include <string>

#include "formats/base/limits.h"
#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

// ---- config.json --------------------------------------------------------------------------------

constexpr std::uint32_t kMaxConvTaps = 256;
constexpr GatedDeltaDefaults kQwen35Defaults{248320, 40, 262144, 256, 8, 1e7};

constexpr SoftmaxRouterSpec kRenormalised{.renormalise = true};
constexpr ExpertsSpec kExpertsAndShared{.has_shared_expert = true};

// Switches whose other position changes the forward pass.
Status check_gated_delta_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", false));
  MOE_RETURN_IF_ERROR(text.require_flag("attn_output_gate", true));
  MOE_RETURN_IF_ERROR(text.require_absent("sliding_window"));
  MOE_RETURN_IF_ERROR(refuse_dense_layers(text));
  return text.require_absent("clip_qkv");
}

Status read_linear_attention(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.dimension("linear_num_key_heads", 16, model.linear_key_heads));
  MOE_RETURN_IF_ERROR(text.dimension("linear_num_value_heads", 32, model.linear_value_heads));
  MOE_RETURN_IF_ERROR(text.dimension("linear_key_head_dim", 128, model.linear_key_dim));
  MOE_RETURN_IF_ERROR(text.dimension("linear_value_head_dim", 128, model.linear_value_dim));
  MOE_RETURN_IF_ERROR(
      text.dimension("linear_conv_kernel_dim", 4, model.linear_conv_taps, kMaxConvTaps));
  if (model.linear_value_heads % model.linear_key_heads != 0) {
    return text.error("linear_num_value_heads", "is " + std::to_string(model.linear_value_heads) +
                                                    ", no multiple of linear_num_key_heads " +
                                                    std::to_string(model.linear_key_heads));
  }
  const std::uint64_t keys = std::uint64_t{model.linear_key_heads} * model.linear_key_dim;
  const std::uint64_t values = std::uint64_t{model.linear_value_heads} * model.linear_value_dim;
  if (keys > kMaxModelDimension / 4 || values > kMaxModelDimension / 4) {
    return text.error("linear_num_value_heads",
                      "and the other linear dimensions multiply to an "
                      "absurd width");
  }
  return Status::ok();
}

Status read_qwen3_5_moe_config(const ConfigReader& text, ModelConfig& model) {
  return read_gated_delta_config(text, kQwen35Defaults, model);
}

// ---- modules ------------------------------------------------------------------------------------

std::uint64_t key_rows(const ModelConfig& c) {
  return std::uint64_t{c.linear_key_heads} * c.linear_key_dim;
}
std::uint64_t value_rows(const ModelConfig& c) {
  return std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
}
std::uint64_t conv_rows(const ModelConfig& c) { return 2 * key_rows(c) + value_rows(c); }

ModuleShape value_heads(const ModelConfig& c) { return {c.linear_value_heads}; }
ModuleShape value_heads_by_hidden(const ModelConfig& c) {
  return {c.linear_value_heads, c.hidden_size};
}
// Per head a query, then a gate.
ModuleShape queries_and_gates(const ModelConfig& c) {
  return {2 * shapes::query_rows(c), c.hidden_size};
}
ModuleShape one_row(const ModelConfig& c) { return {1, c.hidden_size}; }
ModuleShape shared_rows(const ModelConfig& c) { return {c.shared_expert_width, c.hidden_size}; }
ModuleShape shared_down(const ModelConfig& c) { return {c.hidden_size, c.shared_expert_width}; }
ModuleShape delta_qkv(const ModelConfig& c) { return {conv_rows(c), c.hidden_size}; }
ModuleShape delta_z(const ModelConfig& c) { return {value_rows(c), c.hidden_size}; }
ModuleShape delta_conv(const ModelConfig& c) { return {conv_rows(c), 1, c.linear_conv_taps}; }
ModuleShape delta_norm(const ModelConfig& c) { return {c.linear_value_dim}; }
ModuleShape delta_out(const ModelConfig& c) { return {c.hidden_size, value_rows(c)}; }

}  // namespace

constinit const std::array<ResidentRule, 25> kGatedDeltaResidents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormAfterAttentionRow,
    rows::kRouterRow,
    {ModuleRole::kSharedExpertGate, "mlp.shared_expert_gate", kOfEvery, one_row, kAtLeast8, true,
     "ffn_gate_inp_shexp.weight"},
    {ModuleRole::kSharedGate, "mlp.shared_expert.gate_proj", kOfEvery, shared_rows, kAsAsked, true,
     "ffn_gate_shexp.weight"},
    {ModuleRole::kSharedUp, "mlp.shared_expert.up_proj", kOfEvery, shared_rows, kAsAsked, true,
     "ffn_up_shexp.weight"},
    {ModuleRole::kSharedDown, "mlp.shared_expert.down_proj", kOfEvery, shared_down, kAsAsked, true,
     "ffn_down_shexp.weight"},

    {ModuleRole::kDeltaQkv, "linear_attn.in_proj_qkv", kOfLinear, delta_qkv, kAsAsked, true,
     "attn_qkv.weight", VHeadRule::kRowsBehindKeys},
    {ModuleRole::kDeltaZ, "linear_attn.in_proj_z", kOfLinear, delta_z, kAsAsked, true,
     "attn_gate.weight", VHeadRule::kRows},
    {ModuleRole::kDeltaBeta, "linear_attn.in_proj_b", kOfLinear, value_heads_by_hidden, kAsAsked,
     true, "ssm_beta.weight", VHeadRule::kScalars},
    {ModuleRole::kDeltaAlpha, "linear_attn.in_proj_a", kOfLinear, value_heads_by_hidden, kAsAsked,
     true, "ssm_alpha.weight", VHeadRule::kScalars},
    {ModuleRole::kDeltaConv, "linear_attn.conv1d", kOfLinear, delta_conv, kNever, true,
     "ssm_conv1d.weight", VHeadRule::kRowsBehindKeys},
    {ModuleRole::kDeltaALog, "linear_attn.A_log", kOfLinear, value_heads, kNever, false, "ssm_a",
     VHeadRule::kScalars},
    {ModuleRole::kDeltaDtBias, "linear_attn.dt_bias", kOfLinear, value_heads, kNever, false,
     "ssm_dt.bias", VHeadRule::kScalars},
    {ModuleRole::kDeltaNorm, "linear_attn.norm", kOfLinear, delta_norm, kNever, true,
     "ssm_norm.weight"},
    {ModuleRole::kDeltaOut, "linear_attn.out_proj", kOfLinear, delta_out, kAsAsked, true,
     "ssm_out.weight", VHeadRule::kColumns},

    {ModuleRole::kQuery, "self_attn.q_proj", kOfFull, queries_and_gates, kAsAsked, true,
     "attn_q.weight"},
    rows::kKeyRow,
    rows::kValueRow,
    rows::kAttentionOutputRow,
    rows::kHeadQueryNormRow,
    rows::kHeadKeyNormRow,
}};

constinit const std::array<PrefixRule, 5> kGatedDeltaPrefixes{{
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.lm_head", "lm_head"},
    {"model.", "model."},
    {"lm_head", "lm_head"},
}};

// The vision tower.
constinit const std::array<std::string_view, 4> kGatedDeltaSkipped{
    "model.visual.", "visual.", "vision_tower.", "model.vision_tower."};

constinit const std::array<std::string_view, 5> kGatedDeltaPrediction{
    "mtp.", "model.mtp.", "language_model.mtp.", "language_model.model.mtp.",
    "model.language_model.mtp."};

constinit const Architecture kQwen35MoeFamily{
    .wrapper_type = "qwen3_5_moe",
    .text_model_type = "qwen3_5_moe_text",
    .model_class = "Qwen3_5MoeForCausalLM",
    .read_config = read_qwen3_5_moe_config,
    .norms = NormSource::kToldByConv1d,
    .gguf_architecture = "qwen35moe",
    .gguf_tiles_v_heads = true,
    .gguf_has_rope_sections = true,
    .exports_gguf = true,
    .runs_in_flashmoe = true,
    .prefixes = kGatedDeltaPrefixes,
    .skipped = kGatedDeltaSkipped,
    .residents = kGatedDeltaResidents,
    .fused = {},
    .experts = &kMlpExperts,
    .prediction = kGatedDeltaPrediction,
};

Status read_gated_delta_config(const ConfigReader& text, const GatedDeltaDefaults& defaults,
                               ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_gated_delta_switches(text));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = defaults.vocab_size,
                                       .hidden_size = 2048,
                                       .num_layers = defaults.num_layers,
                                       .max_position_embeddings = defaults.max_position_embeddings,
                                       .rms_norm_eps = 1e-6},
                                      model));
  const LayerSpec full{.mixer = FullAttentionSpec{.has_gate = true, .norm = QueryKeyNorm::kPerHead},
                       .router = kRenormalised,
                       .feed_forward = kExpertsAndShared};
  const LayerSpec linear{
      .mixer = GatedDeltaNetSpec{}, .router = kRenormalised, .feed_forward = kExpertsAndShared};
  MOE_RETURN_IF_ERROR(read_layer_types(text, 4, full, linear, model));
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = defaults.num_experts,
                                    .experts_per_token = defaults.experts_per_token,
                                    .width_key = "moe_intermediate_size",
                                    .width = 512},
                                   model));
  MOE_RETURN_IF_ERROR(
      text.dimension("shared_expert_intermediate_size", 512, model.shared_expert_width));
  MOE_RETURN_IF_ERROR(
      read_attention_heads(text, {.num_heads = 16, .num_kv_heads = 2, .head_dim = 256}, model));
  MOE_RETURN_IF_ERROR(
      read_rope(text, {.theta = defaults.rope_theta, .partial_rotary_factor = 0.25}, model));
  return read_linear_attention(text, model);
}

}  // namespace moepack
