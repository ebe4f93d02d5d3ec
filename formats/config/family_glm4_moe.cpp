// GLM-4.5 to GLM-4.7: full attention with biases, dense networks in the first layers, the router of
// DeepSeek-V3 and a shared expert that is added. Source: transformers' glm4_moe; the values for
// absent keys are its configuration class's.
#include <array>

#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

// Published models have one.
constexpr std::uint32_t kMaxSharedExperts = 64;

Status read_glm4_experts(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 128,
                                    .num_key = "n_routed_experts",
                                    .experts_per_token = 8,
                                    .width_key = "moe_intermediate_size",
                                    .width = 1408},
                                   model));
  std::uint32_t shared = 0;
  MOE_RETURN_IF_ERROR(text.dimension("n_shared_experts", 1, shared, kMaxSharedExperts));
  model.shared_expert_width = shared * model.expert_width;
  return Status::ok();
}

Result<FullAttentionSpec> read_glm4_attention(const ConfigReader& text) {
  MOE_ASSIGN_OR_RETURN(const auto norm, text.optional_flag("use_qk_norm"));
  MOE_ASSIGN_OR_RETURN(const auto bias, text.optional_flag("attention_bias"));
  return FullAttentionSpec{
      .norm = norm.value_or(false) ? QueryKeyNorm::kPerHead : QueryKeyNorm::kNone,
      .has_bias = bias.value_or(false)};
}

Status read_glm4_moe_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 151552,
                                       .hidden_size = 4096,
                                       .num_layers = 46,
                                       .max_position_embeddings = 131072,
                                       .rms_norm_eps = 1e-5},
                                      model));
  MOE_RETURN_IF_ERROR(read_glm4_experts(text, model));
  MOE_ASSIGN_OR_RETURN(const SigmoidRouterSpec router, read_sigmoid_router(text, {}, model));
  MOE_ASSIGN_OR_RETURN(const FullAttentionSpec attention, read_glm4_attention(text));
  const LayerSpec layer{
      .mixer = attention,
      .router = router,
      .feed_forward = ExpertsSpec{.has_shared_expert = true, .has_shared_gate = false}};
  MOE_RETURN_IF_ERROR(read_dense_layers(text, {.layers = 1, .width = 10944}, layer, model));
  MOE_RETURN_IF_ERROR(read_prediction_layers(text, model));
  MOE_RETURN_IF_ERROR(
      read_attention_heads(text, {.num_heads = 96, .num_kv_heads = 8, .head_dim = 128}, model));
  return read_rope(text, {.theta = 1e4, .partial_rotary_factor = 0.5}, model);
}

constexpr std::array<ResidentRule, 22> kGlm4MoeResidents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormAfterAttentionRow,
    {ModuleRole::kRouter, "mlp.gate", kOfExperts, shapes::router, kAtLeast8, true,
     "ffn_gate_inp.weight"},
    {.role = ModuleRole::kRouterCorrection,
     .name = "mlp.gate.e_score_correction_bias",
     .scope = kOfExperts,
     .shape = shapes::experts,
     .rounding = kNever,
     .has_weight_suffix = false,
     .gguf_name = "exp_probs_b.bias"},
    {ModuleRole::kSharedGate, "mlp.shared_experts.gate_proj", kOfExperts, shapes::shared_inner,
     kAsAsked, true, "ffn_gate_shexp.weight"},
    {ModuleRole::kSharedUp, "mlp.shared_experts.up_proj", kOfExperts, shapes::shared_inner,
     kAsAsked, true, "ffn_up_shexp.weight"},
    {ModuleRole::kSharedDown, "mlp.shared_experts.down_proj", kOfExperts, shapes::shared_outer,
     kAsAsked, true, "ffn_down_shexp.weight"},
    {ModuleRole::kDenseGate, "mlp.gate_proj", kOfDense, shapes::dense_inner, kAsAsked, true,
     "ffn_gate.weight"},
    {ModuleRole::kDenseUp, "mlp.up_proj", kOfDense, shapes::dense_inner, kAsAsked, true,
     "ffn_up.weight"},
    {ModuleRole::kDenseDown, "mlp.down_proj", kOfDense, shapes::dense_outer, kAsAsked, true,
     "ffn_down.weight"},

    rows::kQueryRow,
    rows::kKeyRow,
    rows::kValueRow,
    rows::kAttentionOutputRow,
    {ModuleRole::kQueryBias, "self_attn.q_proj.bias", kOfFull, shapes::query_bias, kNever, false,
     "attn_q.bias"},
    {ModuleRole::kKeyBias, "self_attn.k_proj.bias", kOfFull, shapes::key_bias, kNever, false,
     "attn_k.bias"},
    {ModuleRole::kValueBias, "self_attn.v_proj.bias", kOfFull, shapes::key_bias, kNever, false,
     "attn_v.bias"},
    {ModuleRole::kQueryNorm, "self_attn.q_norm", kOfFull, shapes::optional_head, kNever, true,
     "attn_q_norm.weight"},
    {ModuleRole::kKeyNorm, "self_attn.k_norm", kOfFull, shapes::optional_head, kNever, true,
     "attn_k_norm.weight"},
}};

}  // namespace

constinit const Architecture kGlm4MoeFamily{
    .wrapper_type = "glm4_moe",
    .text_model_type = "glm4_moe",
    .model_class = "Glm4MoeForCausalLM",
    .read_config = read_glm4_moe_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "glm4moe",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kGlm4MoeResidents,
    .fused = {},
    .experts = &kMlpExperts,
};

}  // namespace moepack
