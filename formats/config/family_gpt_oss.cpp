// gpt-oss: full attention with biases and sinks, in every other layer within a window; a router and
// experts with biases, whose activation is limited; YaRN. Source: transformers' gpt_oss; the values
// for absent keys are its configuration class's.
//
// Experts are tensors of whole layers, in which rows of gate and up alternate. Those of plain
// numbers are [E, inputs, outputs].
#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

constexpr double kMostActivation = 1e6;

Status read_gpt_oss_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", true));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 201088,
                                       .hidden_size = 2880,
                                       .num_layers = 36,
                                       .max_position_embeddings = 131072,
                                       .rms_norm_eps = 1e-5},
                                      model));
  std::uint32_t window = 0;
  MOE_RETURN_IF_ERROR(text.dimension("sliding_window", 128, window, kMaxStatedPositions));
  MOE_ASSIGN_OR_RETURN(const double limit,
                       text.number_in("swiglu_limit", 7, 1e-3, kMostActivation));
  const LayerSpec layer{.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kNone,
                                                   .has_bias = true,
                                                   .has_output_bias = true,
                                                   .has_sinks = true},
                        .router = SoftmaxRouterSpec{.renormalise = true, .has_bias = true},
                        .feed_forward = ExpertsSpec{.has_biases = true,
                                                    .activation = ExpertActivation::kClampedSwiGlu,
                                                    .activation_limit = static_cast<float>(limit)}};
  MOE_RETURN_IF_ERROR(
      read_window_layers(text, {.window = window, .full_interval = 2}, layer, model));
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 128,
                                    .num_key = "num_local_experts",
                                    .experts_per_token = 4,
                                    .width_key = "intermediate_size",
                                    .width = 2880},
                                   model));
  MOE_RETURN_IF_ERROR(
      read_attention_heads(text, {.num_heads = 64, .num_kv_heads = 8, .head_dim = 64}, model));
  return read_rope(text, {.theta = 150000, .has_yarn = true}, model);
}

ModuleShape inner_bias(const ModelConfig& c) { return {c.num_experts, c.expert_width}; }
ModuleShape outer_bias(const ModelConfig& c) { return {c.num_experts, c.hidden_size}; }
ModuleShape fused_bias(const ModelConfig& c) {
  return {c.num_experts, std::uint64_t{2} * c.expert_width};
}
ModuleShape sinks(const ModelConfig& c) { return {c.num_heads}; }

constexpr ResidentRule bias(ModuleRole role, std::string_view name, LayerScope scope,
                            ModuleShape (*shape)(const ModelConfig&), std::string_view gguf_name) {
  return {role, name, scope, shape, kNever, false, gguf_name};
}

constexpr std::array<ResidentRule, 19> kGptOssResidents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormAfterAttentionRow,
    {ModuleRole::kRouter, "mlp.router", kOfEvery, shapes::router, kAtLeast8, true,
     "ffn_gate_inp.weight"},
    bias(ModuleRole::kRouterBias, "mlp.router.bias", kOfEvery, shapes::experts,
         "ffn_gate_inp.bias"),
    bias(ModuleRole::kExpertGateBias, "mlp.experts.gate_proj_bias", kOfEvery, inner_bias,
         "ffn_gate_exps.bias"),
    bias(ModuleRole::kExpertUpBias, "mlp.experts.up_proj_bias", kOfEvery, inner_bias,
         "ffn_up_exps.bias"),
    bias(ModuleRole::kExpertDownBias, "mlp.experts.down_proj_bias", kOfEvery, outer_bias,
         "ffn_down_exps.bias"),

    rows::kQueryRow,
    rows::kKeyRow,
    rows::kValueRow,
    rows::kAttentionOutputRow,
    bias(ModuleRole::kQueryBias, "self_attn.q_proj.bias", kOfFull, shapes::all_query_heads,
         "attn_q.bias"),
    bias(ModuleRole::kKeyBias, "self_attn.k_proj.bias", kOfFull, shapes::all_key_heads,
         "attn_k.bias"),
    bias(ModuleRole::kValueBias, "self_attn.v_proj.bias", kOfFull, shapes::all_key_heads,
         "attn_v.bias"),
    bias(ModuleRole::kAttentionOutputBias, "self_attn.o_proj.bias", kOfFull, shapes::hidden,
         "attn_output.bias"),
    bias(ModuleRole::kSinks, "self_attn.sinks", kOfFull, sinks, "attn_sinks.weight"),
}};

constexpr std::array<FusedRule, 1> kGptOssFused{{
    {.name = "mlp.experts.gate_up_proj_bias",
     .gguf_name = "",
     .usual_in_gguf = false,
     .shape = fused_bias,
     .parts = {{{.role = ModuleRole::kExpertGateBias, .rows = nullptr, .column_step = 2},
                {.role = ModuleRole::kExpertUpBias,
                 .rows = nullptr,
                 .first_column = 1,
                 .column_step = 2}}},
     .has_weight_suffix = false},
}};

constexpr ExpertNames kGptOssExperts{
    .folder = "mlp.experts.",
    .stacked = "mlp.experts.stacked.",  // none: mlx-lm's are below FOLDER too
    .matrices = kMlpExperts.matrices,
    .gguf = kMlpExperts.gguf,
    .stacked_matrices = kMlpExperts.matrices,
    .is_interleaved = true,
    .is_transposed = true,
};

}  // namespace

constinit const Architecture kGptOssFamily{
    .wrapper_type = "gpt_oss",
    .text_model_type = "gpt_oss",
    .model_class = "GptOssForCausalLM",
    .read_config = read_gpt_oss_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "gpt-oss",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kGptOssResidents,
    .fused = kGptOssFused,
    .experts = &kGptOssExperts,
};

}  // namespace moepack
