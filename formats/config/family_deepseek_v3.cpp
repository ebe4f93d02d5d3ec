// DeepSeek-V3, R1 and V3.1, and Kimi K2, which says the same under another model type: latent
// attention, sigmoid routing by groups with a correction, a shared expert that is added, dense
// networks in the first layers. Source: transformers' deepseek_v3; the values for absent keys are
// its configuration class's. Kimi K2.5 wraps the model in one that sees.
#include <array>
#include <cmath>
#include <string_view>

#include "formats/config/config_latent.h"
#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

// Published models have one.
constexpr double kMostSharedExperts = 64;

Status check_deepseek_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", false));
  MOE_RETURN_IF_ERROR(text.require_text("scoring_func", "sigmoid"));
  MOE_RETURN_IF_ERROR(text.require_text("topk_method", "noaux_tc"));
  std::uint32_t every = 0;
  MOE_RETURN_IF_ERROR(text.dimension("moe_layer_freq", 1, every));
  if (every == 1) return Status::ok();
  return text.unsupported_value("moe_layer_freq", std::to_string(every));
}

Status read_deepseek_experts(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 256,
                                    .num_key = "n_routed_experts",
                                    .experts_per_token = 8,
                                    .width_key = "moe_intermediate_size",
                                    .width = 2048},
                                   model));
  constexpr std::string_view kShared = "n_shared_experts";
  MOE_ASSIGN_OR_RETURN(const double shared, text.number_in(kShared, 1, 0, kMostSharedExperts));
  if (shared != std::floor(shared)) return text.error(kShared, "is no whole number");
  model.shared_expert_width = static_cast<std::uint32_t>(shared) * model.expert_width;
  return Status::ok();
}

Status read_deepseek_v3_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_deepseek_switches(text));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 129280,
                                       .hidden_size = 7168,
                                       .num_layers = 61,
                                       .max_position_embeddings = 4096,
                                       .rms_norm_eps = 1e-6},
                                      model));
  MOE_RETURN_IF_ERROR(read_deepseek_experts(text, model));
  MOE_RETURN_IF_ERROR(read_latent_attention(text,
                                            {.num_heads = 128,
                                             .query_rank = 1536,
                                             .kv_rank = 512,
                                             .plain_dim = 128,
                                             .rotary_dim = 64,
                                             .value_dim = 128,
                                             .rope_theta = 1e4},
                                            model));
  MOE_ASSIGN_OR_RETURN(
      const SigmoidRouterSpec router,
      read_sigmoid_router(text, {.scale = 2.5, .groups = 8, .kept_groups = 4}, model));
  const LayerSpec layer{
      .mixer = LatentAttentionSpec{.has_query_rank = model.query_rank != 0},
      .router = router,
      .feed_forward = ExpertsSpec{.has_shared_expert = model.shared_expert_width != 0,
                                  .has_shared_gate = false}};
  MOE_RETURN_IF_ERROR(read_dense_layers(text, {.layers = 3, .width = 18432}, layer, model));
  return read_prediction_layers(text, model);
}

// Without a query rank there is one projection in place of two.
ModuleShape whole_queries(const ModelConfig& c) {
  return {c.query_rank == 0 ? shapes::query_rows(c) : 0, c.hidden_size};
}
ModuleShape query_down(const ModelConfig& c) { return {c.query_rank, c.hidden_size}; }
ModuleShape query_down_norm(const ModelConfig& c) { return {c.query_rank}; }
ModuleShape query_up(const ModelConfig& c) { return {shapes::query_rows(c), c.query_rank}; }
ModuleShape key_value_down(const ModelConfig& c) {
  return {std::uint64_t{c.kv_rank} + c.rotary_dim, c.hidden_size};
}
ModuleShape key_value_norm(const ModelConfig& c) { return {c.kv_rank}; }
// Of each head the rows of its key that is not rotated, then those of its value.
ModuleShape key_value_up(const ModelConfig& c) {
  const std::uint64_t rows = std::uint64_t{c.head_dim} - c.rotary_dim + c.value_dim;
  return {c.num_heads * rows, c.kv_rank};
}
ModuleShape latent_output(const ModelConfig& c) {
  return {c.hidden_size, std::uint64_t{c.num_heads} * c.value_dim};
}

constexpr std::array<ResidentRule, 21> kDeepseekResidents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormRow,
    {ModuleRole::kRouter, "mlp.gate", kOfExperts, shapes::router, kAtLeast8, true,
     "ffn_gate_inp.weight"},
    {ModuleRole::kRouterCorrection, "mlp.gate.e_score_correction_bias", kOfExperts, shapes::experts,
     kNever, false, "exp_probs_b.bias"},
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

    {ModuleRole::kQuery, "self_attn.q_proj", kOfLatent, whole_queries, kAsAsked, true,
     "attn_q.weight"},
    {ModuleRole::kQueryDown, "self_attn.q_a_proj", kOfLatent, query_down, kAsAsked, true,
     "attn_q_a.weight"},
    {ModuleRole::kQueryDownNorm, "self_attn.q_a_layernorm", kOfLatent, query_down_norm, kNever,
     true, "attn_q_a_norm.weight"},
    {ModuleRole::kQueryUp, "self_attn.q_b_proj", kOfLatent, query_up, kAsAsked, true,
     "attn_q_b.weight"},
    {ModuleRole::kKeyValueDown, "self_attn.kv_a_proj_with_mqa", kOfLatent, key_value_down, kAsAsked,
     true, "attn_kv_a_mqa.weight"},
    {ModuleRole::kKeyValueNorm, "self_attn.kv_a_layernorm", kOfLatent, key_value_norm, kNever, true,
     "attn_kv_a_norm.weight"},
    // In GGUF files of older converters; later ones have attn_k_b and attn_v_b instead.
    {ModuleRole::kKeyValueUp, "self_attn.kv_b_proj", kOfLatent, key_value_up, kAsAsked, true,
     "attn_kv_b.weight"},
    {ModuleRole::kAttentionOutput, "self_attn.o_proj", kOfLatent, latent_output, kAsAsked, true,
     "attn_output.weight"},
}};

constexpr std::array<PrefixRule, 4> kKimiPrefixes{{
    {"language_model.model.", "model."},
    {"language_model.lm_head", "lm_head"},
    {"model.", "model."},
    {"lm_head", "lm_head"},
}};
constexpr std::array<std::string_view, 2> kKimiSkipped{"vision_tower.", "mm_projector."};

}  // namespace

constinit const Architecture kDeepseekV3Family{
    .wrapper_type = "deepseek_v3",
    .text_model_type = "deepseek_v3",
    .model_class = "DeepseekV3ForCausalLM",
    .read_config = read_deepseek_v3_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "deepseek2",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kDeepseekResidents,
    .fused = {},
    .experts = &kMlpExperts,
};

constinit const Architecture kKimiK2Family{
    .wrapper_type = "kimi_k25",
    .text_model_type = "kimi_k2",
    .model_class = "DeepseekV3ForCausalLM",
    .read_config = read_deepseek_v3_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kKimiPrefixes,
    .skipped = kKimiSkipped,
    .residents = kDeepseekResidents,
    .fused = {},
    .experts = &kMlpExperts,
};

}  // namespace moepack
