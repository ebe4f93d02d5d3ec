// MiniMax-M2: full attention whose norms take all heads at once and that rotates a part of them,
// sigmoid routing with corrections, no shared expert. Source: transformers' minimax_m2 and the
// published configuration; the values for absent keys are the configuration class's.
#include <array>

#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

// Settings of the published file whose other values mean other math.
Status check_minimax_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("use_qk_norm", true));
  MOE_RETURN_IF_ERROR(text.require_text("qk_norm_type", "per_layer"));
  MOE_RETURN_IF_ERROR(text.require_flag("use_routing_bias", true));
  MOE_RETURN_IF_ERROR(text.require_text("scoring_func", "sigmoid"));
  MOE_RETURN_IF_ERROR(text.number_in("shared_intermediate_size", 0, 0, 0).status());
  return text.require_absent("sliding_window");
}

Status read_minimax_m2_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_minimax_switches(text));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 200064,
                                       .hidden_size = 3072,
                                       .num_layers = 62,
                                       .max_position_embeddings = 196608,
                                       .rms_norm_eps = 1e-6},
                                      model));
  const LayerSpec layer{.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kWholeWidth},
                        .router = SigmoidRouterSpec{},
                        .feed_forward = ExpertsSpec{}};
  model.layers.assign(model.num_layers, layer);
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 256,
                                    .num_key = "num_local_experts",
                                    .experts_per_token = 8,
                                    .width_key = "intermediate_size",
                                    .width = 1536},
                                   model));
  MOE_RETURN_IF_ERROR(
      read_attention_heads(text, {.num_heads = 48, .num_kv_heads = 8, .head_dim = 128}, model));
  MOE_RETURN_IF_ERROR(read_prediction_layers(text, model, "num_mtp_modules"));
  return read_rope(text, {.theta = 5e6, .rotary_key = "rotary_dim"}, model);
}

constexpr std::array<ResidentRule, 13> kMinimaxM2Residents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormRow,
    rows::kBlockSparseRouterRow,
    {.role = ModuleRole::kRouterCorrection,
     .name = "block_sparse_moe.e_score_correction_bias",
     .scope = kOfEvery,
     .shape = shapes::experts,
     .rounding = kNever,
     .has_weight_suffix = false,
     .gguf_name = "exp_probs_b.bias"},

    rows::kQueryRow,
    rows::kKeyRow,
    rows::kValueRow,
    rows::kAttentionOutputRow,
    rows::kWholeQueryNormRow,
    rows::kWholeKeyNormRow,
}};

}  // namespace

constinit const Architecture kMinimaxM2Family{
    .wrapper_type = "minimax_m2",
    .text_model_type = "minimax_m2",
    .model_class = "MiniMaxM2ForCausalLM",
    .read_config = read_minimax_m2_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "minimax-m2",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kMinimaxM2Residents,
    .fused = {},
    .experts = &kBlockSparseExperts,
};

}  // namespace moepack
