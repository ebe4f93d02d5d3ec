// The families with GatedDeltaNet: qwen3_5_moe (Qwen3.5 and Qwen3.6 MoE) and qwen3_next. Defaults:
// those of their transformers configuration classes, which are the published 35B-A3B and 80B-A3B.
#include <cstdint>
#include <string>

#include "formats/config/config_parts.h"

namespace moepack {
namespace {

constexpr std::uint32_t kMaxLayers = 4096;
constexpr std::uint32_t kMaxExperts = 1U << 16;
constexpr std::uint32_t kMaxConvTaps = 256;
constexpr std::uint32_t kMaxContext = 1U << 30;

// Where the two differ.
struct Defaults {
  std::uint32_t vocab_size;
  std::uint32_t num_layers;
  std::uint32_t max_position_embeddings;
  std::uint32_t num_experts;
  std::uint32_t experts_per_token;
  double rope_theta;
};
constexpr Defaults kQwen35{248320, 40, 262144, 256, 8, 1e7};
constexpr Defaults kQwen3Next{151936, 48, 32768, 512, 10, 1e4};

// Switches whose other position changes the forward pass.
Status check_switches(const ConfigReader& text) {
  MOE_RETURN_IF_ERROR(text.require_text("hidden_act", "silu"));
  MOE_RETURN_IF_ERROR(text.require_flag("attention_bias", false));
  MOE_RETURN_IF_ERROR(text.require_flag("attn_output_gate", true));
  MOE_RETURN_IF_ERROR(text.require_absent("sliding_window"));
  MOE_RETURN_IF_ERROR(refuse_dense_layers(text));
  return text.require_absent("clip_qkv");
}

Status read_experts(const ConfigReader& text, const Defaults& defaults, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(
      text.dimension("num_experts", defaults.num_experts, model.num_experts, kMaxExperts));
  MOE_RETURN_IF_ERROR(
      text.dimension("num_experts_per_tok", defaults.experts_per_token, model.experts_per_token));
  MOE_RETURN_IF_ERROR(text.dimension("moe_intermediate_size", 512, model.expert_width));
  MOE_RETURN_IF_ERROR(
      text.dimension("shared_expert_intermediate_size", 512, model.shared_expert_width));
  if (model.experts_per_token > model.num_experts) {
    return text.error("num_experts_per_tok", "is " + std::to_string(model.experts_per_token) +
                                                 ", above num_experts " +
                                                 std::to_string(model.num_experts));
  }
  return Status::ok();
}

Status read_attention(const ConfigReader& text, const Defaults& defaults, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.dimension("num_attention_heads", 16, model.num_heads));
  MOE_RETURN_IF_ERROR(text.dimension("num_key_value_heads", 2, model.num_kv_heads));
  MOE_RETURN_IF_ERROR(text.dimension("head_dim", 256, model.head_dim));
  if (model.num_heads % model.num_kv_heads != 0) {
    return text.error("num_attention_heads", "is " + std::to_string(model.num_heads) +
                                                 ", no multiple of num_key_value_heads " +
                                                 std::to_string(model.num_kv_heads));
  }
  // q_proj holds a query and a gate for every head.
  if (std::uint64_t{model.num_heads} * model.head_dim > kMaxDimension / 2) {
    return text.error("head_dim", "times num_attention_heads is absurdly large");
  }
  return read_rope(text, {.theta = defaults.rope_theta, .partial_rotary_factor = 0.25}, model);
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
  if (keys > kMaxDimension / 4 || values > kMaxDimension / 4) {
    return text.error("linear_num_value_heads",
                      "and the other linear dimensions multiply to an "
                      "absurd width");
  }
  return Status::ok();
}

Status read_family(const ConfigReader& text, const Defaults& defaults, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(check_switches(text));
  MOE_RETURN_IF_ERROR(text.dimension("vocab_size", defaults.vocab_size, model.vocab_size));
  MOE_RETURN_IF_ERROR(text.dimension("hidden_size", 2048, model.hidden_size));
  MOE_RETURN_IF_ERROR(
      text.dimension("num_hidden_layers", defaults.num_layers, model.num_layers, kMaxLayers));
  MOE_RETURN_IF_ERROR(text.dimension("max_position_embeddings", defaults.max_position_embeddings,
                                     model.max_position_embeddings, kMaxContext));
  MOE_RETURN_IF_ERROR(read_layer_types(text, 4, model));
  MOE_ASSIGN_OR_RETURN(const auto eps, text.optional_number("rms_norm_eps"));
  model.rms_norm_eps = static_cast<float>(eps.value_or(1e-6));
  if (!(model.rms_norm_eps > 0 && model.rms_norm_eps < 1)) {
    return text.error("rms_norm_eps", "is not a float between 0 and 1");
  }
  MOE_ASSIGN_OR_RETURN(const auto tied, text.optional_flag("tie_word_embeddings"));
  model.tie_word_embeddings = tied.value_or(false);
  MOE_RETURN_IF_ERROR(read_experts(text, defaults, model));
  MOE_RETURN_IF_ERROR(read_attention(text, defaults, model));
  return read_linear_attention(text, model);
}

}  // namespace

Status read_qwen3_5_moe_config(const ConfigReader& text, ModelConfig& model) {
  return read_family(text, kQwen35, model);
}

Status read_qwen3_next_config(const ConfigReader& text, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.require_flag("norm_topk_prob", true));
  return read_family(text, kQwen3Next, model);
}

}  // namespace moepack
