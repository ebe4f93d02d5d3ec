// Gemma 4 with experts: attention within a window, and in every sixth layer over all tokens with
// heads of another size whose values are their keys; a dense network beside routed experts, each
// between norms of its own; norms behind mixer and network. Source: transformers' gemma4; the
// values for absent keys are its configuration class's.
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "formats/base/number_text.h"
#include "formats/config/config_parts.h"
#include "formats/config/families.h"
#include "formats/config/family_parts.h"

namespace moepack {
namespace {

constexpr double kMostCap = 1e6;
constexpr std::uint32_t kMostHeadRows = kMaxModelDimension / 2;

// Switches whose other position changes the forward pass.
Status check_gemma4_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_activation", "gelu_pytorch_tanh"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", false));
  // "vision" lets only the tokens of a picture see each other.
  MOE_RETURN_IF_ERROR(text.require_text("use_bidirectional_attention", "vision"));
  MOE_RETURN_IF_ERROR(text.require_absent("rope_scaling"));
  MOE_RETURN_IF_ERROR(text.require_absent("attn_logit_softcapping"));
  for (const auto& [key, fallback] :
       {std::pair{"hidden_size_per_layer_input", 256}, std::pair{"num_kv_shared_layers", 0}}) {
    MOE_ASSIGN_OR_RETURN(const auto value, text.optional_number(key));
    if (value.value_or(fallback) == 0) continue;
    return text.unsupported_value(
        key, value.has_value() ? ConfigReader::shown(*text.find(key)) : "256 where it is absent");
  }
  MOE_ASSIGN_OR_RETURN(const auto has_experts, text.optional_flag("enable_moe_block"));
  if (has_experts.value_or(false)) return Status::ok();
  return text.unsupported_value("enable_moe_block", "false, a model without experts");
}

Status read_gemma4_experts(const ConfigReader& text, ModelConfig& model) {
  for (const std::string_view key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    if (!text.has(key)) return text.error(key, "is missing");
  }
  MOE_RETURN_IF_ERROR(read_experts(
      text, {.chosen_key = "top_k_experts", .width_key = "moe_intermediate_size"}, model));
  return text.dimension("intermediate_size", 9216, model.shared_expert_width);
}

bool is_sliding(const LayerSpec& layer) {
  return std::get<FullAttentionSpec>(layer.mixer).window.has_value();
}

// What a layer that sees all tokens says of its heads; absent: as the other layers have it.
struct WideHeads {
  std::optional<std::uint32_t> head_dim;
  std::optional<std::uint32_t> kv_heads;

  friend bool operator==(const WideHeads&, const WideHeads&) = default;
};

Result<WideHeads> read_layer_entry(const ConfigReader& entry) {
  for (const auto& item : entry.json().items()) {
    if (item.key() == "head_dim" || item.key() == "num_key_value_heads") continue;
    return entry.unsupported_value(item.key(), ConfigReader::shown(item.value()));
  }
  WideHeads heads;
  MOE_ASSIGN_OR_RETURN(heads.head_dim, entry.optional_dimension("head_dim"));
  MOE_ASSIGN_OR_RETURN(heads.kv_heads, entry.optional_dimension("num_key_value_heads"));
  return heads;
}

// Newer versions of transformers write a list of departures by layer in place of two numbers.
Result<WideHeads> read_per_layer(const ConfigReader& text, const ConfigReader& entries,
                                 const ModelConfig& model) {
  constexpr std::string_view kKey = "per_layer_config";
  std::optional<WideHeads> wide;
  std::size_t count = 0;
  for (std::size_t l = 0; l < model.num_layers; ++l) {
    MOE_ASSIGN_OR_RETURN(const auto entry, entries.object(std::to_string(l)));
    if (entry.has_value()) ++count;
    if (is_sliding(model.layers[l])) {
      if (!entry.has_value()) continue;
      return text.unsupported_value(
          kKey, "an entry for layer " + std::to_string(l) + ", which has a window");
    }
    MOE_ASSIGN_OR_RETURN(const WideHeads heads,
                         entry.has_value() ? read_layer_entry(*entry) : WideHeads{});
    if (wide.has_value() && !(*wide == heads)) {
      return text.unsupported_value(kKey, "other heads for layer " + std::to_string(l) +
                                              " than for others that see all tokens");
    }
    wide = heads;
  }
  if (count != entries.json().size()) return text.error(kKey, "has a key that is no layer");
  return wide.value_or(WideHeads{});
}

Result<WideHeads> read_wide_heads(const ConfigReader& text, bool values_are_keys,
                                  const ModelConfig& model) {
  MOE_ASSIGN_OR_RETURN(const auto entries, text.object("per_layer_config"));
  if (entries.has_value()) return read_per_layer(text, *entries, model);
  WideHeads heads;
  MOE_ASSIGN_OR_RETURN(heads.head_dim, text.optional_dimension("global_head_dim"));
  if (!heads.head_dim.has_value()) heads.head_dim = 512;
  if (!values_are_keys) return heads;  // transformers does not look at the other then
  MOE_ASSIGN_OR_RETURN(heads.kv_heads, text.optional_dimension("num_global_key_value_heads"));
  return heads;
}

// `name`: of a kind of layers below rope_parameters, nullopt where the file has none.
Result<std::optional<ConfigReader>> rope_of(const ConfigReader& text, std::string_view name) {
  MOE_ASSIGN_OR_RETURN(const auto kinds, text.object("rope_parameters"));
  if (!kinds.has_value()) return std::optional<ConfigReader>();
  MOE_ASSIGN_OR_RETURN(const auto rope, kinds->object(name));
  if (!rope.has_value()) return kinds->error(name, "is missing");
  return rope;
}

// Pairs are (i, i + half); of the type "proportional" only the first of them turn, at the
// frequencies that they would have among all.
Status read_gemma4_rope(const ConfigReader& text, std::string_view name, double theta,
                        double fallback_share, HeadSizes& heads) {
  heads.rotary_dim = heads.head_dim;
  if (heads.head_dim % 2 != 0) {
    return text.error("head_dim",
                      "is " + std::to_string(heads.head_dim) + "; its values must form pairs");
  }
  heads.rope_theta = theta;
  double share = fallback_share;
  MOE_ASSIGN_OR_RETURN(const auto rope, rope_of(text, name));
  if (rope.has_value()) {
    MOE_ASSIGN_OR_RETURN(const auto type, rope->optional_text("rope_type"));
    if (!type.has_value()) return rope->error("rope_type", "is missing");
    if (*type != "default" && *type != "proportional") {
      return rope->unsupported_value("rope_type", ConfigReader::shown(*rope->find("rope_type")));
    }
    if (!rope->has("rope_theta")) return rope->error("rope_theta", "is missing");
    MOE_ASSIGN_OR_RETURN(heads.rope_theta, read_rope_theta(*rope, theta));
    MOE_ASSIGN_OR_RETURN(share, rope->number_in("partial_rotary_factor", 1, 0, 1));
    if (share != 1 && *type == "default") {
      return rope->unsupported_value("partial_rotary_factor", six_digits(share));
    }
    MOE_ASSIGN_OR_RETURN(const double factor, rope->number_in("factor", 1, 0, kMostCap));
    if (factor != 1) return rope->unsupported_value("factor", six_digits(factor));
  }
  heads.rotated_pairs = static_cast<std::uint32_t>(std::floor(share * heads.head_dim / 2));
  return Status::ok();
}

Status read_gemma4_heads(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(
      read_attention_heads(text, {.num_heads = 8, .num_kv_heads = 4, .head_dim = 256}, model));
  HeadSizes narrow = model.heads_of({});
  MOE_RETURN_IF_ERROR(read_gemma4_rope(text, "sliding_attention", 1e4, 1, narrow));
  model.rotary_dim = narrow.rotary_dim;
  model.rope_theta = narrow.rope_theta;

  MOE_ASSIGN_OR_RETURN(const auto shares, text.optional_flag("attention_k_eq_v"));
  const bool values_are_keys = shares.value_or(false);
  MOE_ASSIGN_OR_RETURN(const WideHeads stated, read_wide_heads(text, values_are_keys, model));
  HeadSizes wide = model.heads_of({});
  wide.head_dim = stated.head_dim.value_or(wide.head_dim);
  wide.kv_heads = stated.kv_heads.value_or(wide.kv_heads);
  if (wide.heads % wide.kv_heads != 0) {
    return text.error("num_attention_heads", "is " + std::to_string(wide.heads) +
                                                 ", no multiple of the " +
                                                 std::to_string(wide.kv_heads) +
                                                 " key-value heads of layers that see all tokens");
  }
  if (std::uint64_t{wide.heads} * wide.head_dim > kMostHeadRows) {
    return text.error("global_head_dim", "times num_attention_heads is absurdly large");
  }
  MOE_RETURN_IF_ERROR(read_gemma4_rope(text, "full_attention", 1e6, 0.25, wide));
  for (LayerSpec& layer : model.layers) {
    auto& attention = std::get<FullAttentionSpec>(layer.mixer);
    if (attention.window.has_value() && narrow.rotated_pairs == narrow.rotary_dim / 2) continue;
    attention.own_heads = attention.window.has_value() ? narrow : wide;
    attention.values_are_keys = values_are_keys && !attention.window.has_value();
  }
  return Status::ok();
}

Status read_gemma4_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_gemma4_switches(text));
  MOE_RETURN_IF_ERROR(read_text_model(text,
                                      {.vocab_size = 262144,
                                       .hidden_size = 2304,
                                       .num_layers = 30,
                                       .max_position_embeddings = 131072,
                                       .rms_norm_eps = 1e-6},
                                      model));
  if (!text.has("tie_word_embeddings")) model.tie_word_embeddings = true;
  model.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(model.hidden_size)));
  MOE_ASSIGN_OR_RETURN(const double cap,
                       text.number_in("final_logit_softcapping", 0, 1e-3, kMostCap));
  model.logit_cap = static_cast<float>(cap);
  std::uint32_t window = 0;
  MOE_RETURN_IF_ERROR(text.dimension("sliding_window", 512, window, kMaxStatedPositions));
  const LayerSpec layer{
      .mixer = FullAttentionSpec{.score_scale = 1.0F, .has_value_norm = true},
      .router = SoftmaxRouterSpec{.renormalise = true, .has_norm = true, .has_expert_scales = true},
      .feed_forward = ExpertsSpec{.has_shared_expert = true,
                                  .has_shared_gate = false,
                                  .activation = ExpertActivation::kGeGlu,
                                  .has_branch_norms = true},
      .has_output_norms = true,
      .has_output_scale = true};
  MOE_RETURN_IF_ERROR(
      read_window_layers(text, {.window = window, .full_interval = 6}, layer, model));
  // Whatever layer_types says, the last layer sees all tokens.
  std::get<FullAttentionSpec>(model.layers.back().mixer).window.reset();
  MOE_RETURN_IF_ERROR(read_gemma4_experts(text, model));
  return read_gemma4_heads(text, model);
}

// ---- modules ------------------------------------------------------------------------------------

const FullAttentionSpec& attention_at(const ModelConfig& c, std::uint32_t layer) {
  return std::get<FullAttentionSpec>(c.layers[layer].mixer);
}
HeadSizes heads_at(const ModelConfig& c, std::uint32_t layer) {
  return c.heads_of(attention_at(c, layer));
}
std::uint64_t query_rows_at(const ModelConfig& c, std::uint32_t layer) {
  const HeadSizes heads = heads_at(c, layer);
  return std::uint64_t{heads.heads} * heads.head_dim;
}
ModuleShape queries_at(const ModelConfig& c, std::uint32_t layer) {
  return {query_rows_at(c, layer), c.hidden_size};
}
ModuleShape keys_at(const ModelConfig& c, std::uint32_t layer) {
  const HeadSizes heads = heads_at(c, layer);
  return {std::uint64_t{heads.kv_heads} * heads.head_dim, c.hidden_size};
}
ModuleShape values_at(const ModelConfig& c, std::uint32_t layer) {
  return attention_at(c, layer).values_are_keys ? ModuleShape{0, c.hidden_size} : keys_at(c, layer);
}
ModuleShape output_at(const ModelConfig& c, std::uint32_t layer) {
  return {c.hidden_size, query_rows_at(c, layer)};
}
ModuleShape head_at(const ModelConfig& c, std::uint32_t layer) {
  return {heads_at(c, layer).head_dim};
}
ModuleShape one(const ModelConfig&) { return {1}; }

using LayerShape = ModuleShape (*)(const ModelConfig&, std::uint32_t);

constexpr ResidentRule by_layer(ResidentRule row, LayerShape shape) {
  row.layer_shape = shape;
  return row;
}
constexpr ResidentRule norm_row(ModuleRole role, std::string_view name) {
  return {role, name, kOfEvery, shapes::hidden, kNever};
}
// Not called ".weight".
constexpr ResidentRule bare_row(ModuleRole role, std::string_view name,
                                ModuleShape (*shape)(const ModelConfig&)) {
  return {role, name, kOfEvery, shape, kNever, false};
}

constexpr std::array<ResidentRule, 23> kGemma4Residents{{
    rows::kEmbeddingRow,
    rows::kFinalNormRow,
    rows::kOutputHeadRow,

    rows::kInputNormRow,
    norm_row(ModuleRole::kMixerOutputNorm, "post_attention_layernorm"),
    norm_row(ModuleRole::kSharedInputNorm, "pre_feedforward_layernorm"),
    norm_row(ModuleRole::kSharedOutputNorm, "post_feedforward_layernorm_1"),
    norm_row(ModuleRole::kPostNorm, "pre_feedforward_layernorm_2"),
    norm_row(ModuleRole::kRoutedOutputNorm, "post_feedforward_layernorm_2"),
    norm_row(ModuleRole::kNetworkOutputNorm, "post_feedforward_layernorm"),
    bare_row(ModuleRole::kOutputScale, "layer_scalar", one),

    {ModuleRole::kRouter, "router.proj", kOfEvery, shapes::router, kAtLeast8},
    bare_row(ModuleRole::kRouterNorm, "router.scale", shapes::hidden),
    bare_row(ModuleRole::kExpertScales, "router.per_expert_scale", shapes::experts),
    {ModuleRole::kSharedGate, "mlp.gate_proj", kOfEvery, shapes::shared_inner, kAsAsked},
    {ModuleRole::kSharedUp, "mlp.up_proj", kOfEvery, shapes::shared_inner, kAsAsked},
    {ModuleRole::kSharedDown, "mlp.down_proj", kOfEvery, shapes::shared_outer, kAsAsked},

    by_layer(rows::kQueryRow, queries_at),
    by_layer(rows::kKeyRow, keys_at),
    by_layer(rows::kValueRow, values_at),
    by_layer(rows::kAttentionOutputRow, output_at),
    by_layer(rows::kHeadQueryNormRow, head_at),
    by_layer(rows::kHeadKeyNormRow, head_at),
}};

constexpr std::array<PrefixRule, 5> kGemma4Prefixes{{
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.lm_head", "lm_head"},
    {"model.", "model."},
    {"lm_head", "lm_head"},
}};

// What makes tokens of pictures and sounds.
constexpr std::array<std::string_view, 8> kGemma4Skipped{
    "model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.embed_audio.",
    "vision_tower.",       "embed_vision.",       "audio_tower.",       "embed_audio."};

constexpr ExpertNames kGemma4Experts{
    .folder = "experts.",
    .stacked = "experts.switch_glu.",
    .matrices = kMlpExperts.matrices,
    .gguf = kMlpExperts.gguf,
    .stacked_matrices = kMlpExperts.matrices,
};

}  // namespace

constinit const Architecture kGemma4Family{
    .wrapper_type = "gemma4",
    .text_model_type = "gemma4_text",
    .model_class = "Gemma4ForCausalLM",
    .read_config = read_gemma4_config,
    .norms = NormSource::kFactor,
    .gguf_architecture = "",
    .gguf_tiles_v_heads = false,
    .gguf_has_rope_sections = false,
    .runs_in_flashmoe = false,
    .prefixes = kGemma4Prefixes,
    .skipped = kGemma4Skipped,
    .residents = kGemma4Residents,
    .fused = {},
    .experts = &kGemma4Experts,
};

}  // namespace moepack
