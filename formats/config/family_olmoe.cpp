// OLMoE: full attention whose norms take all heads at once, softmax routing without renormalising,
// no shared expert. Source: transformers' olmoe; the values for absent keys are its configuration
// class's.
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

// Above it a bound means nothing: no float32 activation of a working model comes near.
constexpr double kMaxClip = 1e30;

Status check_olmoe_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", false));
  MOE_RETURN_IF_ERROR(text.require_absent("sliding_window"));
  return refuse_dense_layers(text);
}

Result<std::optional<float>> read_clip(const ConfigReader& text) {
  constexpr std::string_view kKey = "clip_qkv";
  MOE_ASSIGN_OR_RETURN(const auto clip, text.optional_number(kKey));
  if (!clip.has_value()) return std::optional<float>();
  if (*clip > 0 && *clip <= kMaxClip) return std::optional<float>(static_cast<float>(*clip));
  return text.error(kKey, "is " + ConfigReader::shown(*text.find(kKey)) + ", not above 0");
}

Status read_olmoe_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_olmoe_switches(text));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 50304,
                                       .hidden_size = 2048,
                                       .num_layers = 16,
                                       .max_position_embeddings = 4096,
                                       .rms_norm_eps = 1e-5},
                                      model));
  MOE_ASSIGN_OR_RETURN(const auto clip, read_clip(text));
  MOE_ASSIGN_OR_RETURN(const auto renormalise, text.optional_flag("norm_topk_prob"));
  const LayerSpec layer{.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kWholeWidth, .clip = clip},
                        .router = SoftmaxRouterSpec{.renormalise = renormalise.value_or(false)},
                        .feed_forward = ExpertsSpec{}};
  model.layers.assign(model.num_layers, layer);
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 64,
                                    .other_key = "num_local_experts",
                                    .experts_per_token = 8,
                                    .width_key = "intermediate_size",
                                    .width = 2048},
                                   model));
  MOE_RETURN_IF_ERROR(read_attention_heads(text, {.num_heads = 16}, model));
  return read_rope(text, {.theta = 1e4}, model);
}

constexpr std::array<ResidentRule, 12> kOlmoeResidents{{
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
    rows::kWholeQueryNormRow,
    rows::kWholeKeyNormRow,
}};

}  // namespace

constinit const Architecture kOlmoeFamily{
    .wrapper_type = "olmoe",
    .text_model_type = "olmoe",
    .model_class = "OlmoeForCausalLM",
    .read_config = read_olmoe_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "olmoe",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kOlmoeResidents,
    .fused = {},
    .experts = &kMlpExperts,
};

}  // namespace moepack
