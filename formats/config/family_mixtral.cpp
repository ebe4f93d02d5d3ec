// Mixtral: full attention without norms of queries and keys, softmax routing over the chosen
// experts, no shared expert. Source: transformers' mixtral; the values for absent keys are its
// configuration class's.
#include <array>
#include <optional>

#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

Result<std::optional<std::uint32_t>> read_window(const ConfigReader& text) {
  return text.optional_dimension("sliding_window", kMaxStatedPositions);
}

Status read_mixtral_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 32000,
                                       .hidden_size = 4096,
                                       .num_layers = 32,
                                       .max_position_embeddings = 131072,
                                       .rms_norm_eps = 1e-5},
                                      model));
  MOE_ASSIGN_OR_RETURN(const auto window, read_window(text));
  const LayerSpec layer{.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kNone, .window = window},
                        .router = SoftmaxRouterSpec{.renormalise = true},
                        .feed_forward = ExpertsSpec{}};
  model.layers.assign(model.num_layers, layer);
  MOE_RETURN_IF_ERROR(read_experts(text,
                                   {.num_experts = 8,
                                    .num_key = "num_local_experts",
                                    .experts_per_token = 2,
                                    .width_key = "intermediate_size",
                                    .width = 14336},
                                   model));
  MOE_RETURN_IF_ERROR(read_attention_heads(text, {.num_heads = 32, .num_kv_heads = 8}, model));
  return read_rope(text, {.theta = 1e6}, model);
}

constexpr std::array<ResidentRule, 10> kMixtralResidents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    rows::kPostNormRow,
    rows::kBlockSparseRouterRow,

    rows::kQueryRow,
    rows::kKeyRow,
    rows::kValueRow,
    rows::kAttentionOutputRow,
}};

}  // namespace

constinit const Architecture kMixtralFamily{
    .wrapper_type = "mixtral",
    .text_model_type = "mixtral",
    .model_class = "MixtralForCausalLM",
    .read_config = read_mixtral_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "llama",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .gguf_pairs_rows = true,
    .runs_in_flashmoe = false,
    .prefixes = kTextModelPrefixes,
    .skipped = {},
    .residents = kMixtralResidents,
    .fused = {},
    .experts = &kBlockSparseExperts,
};

}  // namespace moepack
