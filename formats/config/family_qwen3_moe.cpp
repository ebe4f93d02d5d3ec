// Qwen3 MoE (Qwen3-30B-A3B, 235B-A22B, Coder-480B): full attention in every layer with norms per
// head, softmax routing, no shared expert. Source: transformers' qwen3_moe; the values for absent
// keys are its configuration class's.
#include <array>

#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

Status check_qwen3_moe_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", false));
  // Without it the size of the window, which published files state, means nothing.
  MOE_RETURN_IF_ERROR(text.require_flag("use_sliding_window", false));
  MOE_RETURN_IF_ERROR(refuse_dense_layers(text));
  return text.require_absent("clip_qkv");
}

Status read_qwen3_moe_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_qwen3_moe_switches(text));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 151936,
                                       .hidden_size = 2048,
                                       .num_layers = 24,
                                       .max_position_embeddings = 32768,
                                       .rms_norm_eps = 1e-6},
                                      model));
  MOE_ASSIGN_OR_RETURN(const auto renormalise, text.optional_flag("norm_topk_prob"));
  const LayerSpec layer{.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kPerHead},
                        .router = SoftmaxRouterSpec{.renormalise = renormalise.value_or(false)},
                        .feed_forward = ExpertsSpec{}};
  model.layers.assign(model.num_layers, layer);
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 128,
                                    .other_key = "num_local_experts",
                                    .experts_per_token = 8,
                                    .width_key = "moe_intermediate_size",
                                    .width = 768},
                                   model));
  MOE_RETURN_IF_ERROR(read_attention_heads(text, {.num_heads = 32, .num_kv_heads = 4}, model));
  return read_rope(text, {.theta = 1e4}, model);
}

constexpr std::array<ResidentRule, 12> kQwen3MoeResidents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormRow,
    rows::kRouterRow,

    rows::kQueryRow,
    rows::kKeyRow,
    rows::kValueRow,
    rows::kAttentionOutputRow,
    rows::kHeadQueryNormRow,
    rows::kHeadKeyNormRow,
}};

}  // namespace

constinit const Architecture kQwen3MoeFamily{
    .wrapper_type = "qwen3_moe",
    .text_model_type = "qwen3_moe",
    .model_class = "Qwen3MoeForCausalLM",
    .read_config = read_qwen3_moe_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "qwen3moe",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kQwen3MoeResidents,
    .fused = {},
    .experts = &kMlpExperts,
};

}  // namespace moepack
