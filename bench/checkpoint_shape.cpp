#include "bench/checkpoint_shape.h"

#include <nlohmann/json.hpp>

namespace moepack::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kFullAttentionInterval = 4;

Json text_config(const ModelConfig& shape) {
  Json types = Json::array();
  for (const LayerSpec& layer : shape.layers) {
    types.push_back(layer_type(layer) == LayerType::kFullAttention ? "full_attention"
                                                                   : "linear_attention");
  }
  const double rotary = static_cast<double>(shape.rotary_dim) / shape.head_dim;
  return {
      {"model_type", "qwen3_5_moe_text"},
      {"architectures", {"Qwen3_5MoeForCausalLM"}},
      {"vocab_size", shape.vocab_size},
      {"hidden_size", shape.hidden_size},
      {"num_hidden_layers", shape.num_layers},
      {"layer_types", types},
      {"num_experts", shape.num_experts},
      {"num_experts_per_tok", shape.experts_per_token},
      {"moe_intermediate_size", shape.expert_width},
      {"shared_expert_intermediate_size", shape.shared_expert_width},
      {"num_attention_heads", shape.num_heads},
      {"num_key_value_heads", shape.num_kv_heads},
      {"head_dim", shape.head_dim},
      {"linear_num_key_heads", shape.linear_key_heads},
      {"linear_num_value_heads", shape.linear_value_heads},
      {"linear_key_head_dim", shape.linear_key_dim},
      {"linear_value_head_dim", shape.linear_value_dim},
      {"linear_conv_kernel_dim", shape.linear_conv_taps},
      {"rope_parameters",
       {{"rope_type", "default"},
        {"rope_theta", shape.rope_theta},
        {"partial_rotary_factor", rotary}}},
      {"rms_norm_eps", 1e-6},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"tie_word_embeddings", false},
      {"max_position_embeddings", shape.max_position_embeddings},
      {"eos_token_id", shape.eos_token_ids.empty() ? 0 : shape.eos_token_ids.front()},
      {"dtype", "bfloat16"},
  };
}

// mlx-lm's `quantization`: 4 bits, and the routers by name.
Json mlx_block(const ModelConfig& shape) {
  Json block = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  for (std::uint32_t i = 0; i < shape.num_layers; ++i) {
    const std::string mlp = "language_model.model.layers." + std::to_string(i) + ".mlp.";
    for (const char* module : {"gate", "shared_expert_gate"}) {
      block[mlp + module] = {{"group_size", 64}, {"bits", 8}};
    }
  }
  return block;
}

}  // namespace

void set_layers(std::uint32_t num_layers, ModelConfig& shape) {
  shape.num_layers = num_layers;
  shape.layers.assign(num_layers, {.mixer = GatedDeltaNetSpec{}});
  for (std::uint32_t i = kFullAttentionInterval - 1; i < num_layers; i += kFullAttentionInterval) {
    shape.layers[i].mixer = FullAttentionSpec{.has_gate = true};
  }
}

std::optional<ModelConfig> preset_shape(std::string_view preset) {
  ModelConfig shape;
  shape.vocab_size = 248320;
  shape.max_position_embeddings = 262144;
  shape.num_kv_heads = 2;
  shape.head_dim = 256;
  shape.rotary_dim = 64;
  shape.rope_theta = 1e7;
  shape.linear_key_heads = 16;
  shape.linear_key_dim = 128;
  shape.linear_value_dim = 128;
  shape.linear_conv_taps = 4;
  shape.num_experts = 256;
  shape.experts_per_token = 8;
  if (preset == "35b-a3b") {
    shape.hidden_size = 2048;
    shape.num_heads = 16;
    shape.expert_width = 512;
    shape.linear_value_heads = 32;
    set_layers(40, shape);
  } else if (preset == "122b-a10b") {
    shape.hidden_size = 3072;
    shape.num_heads = 32;
    shape.expert_width = 1024;
    shape.linear_value_heads = 64;
    set_layers(48, shape);
  } else if (preset == "397b-a17b") {
    shape.hidden_size = 4096;
    shape.num_heads = 32;
    shape.expert_width = 1024;
    shape.linear_value_heads = 64;
    shape.num_experts = 512;
    shape.experts_per_token = 10;
    set_layers(60, shape);
  } else {
    return std::nullopt;
  }
  shape.shared_expert_width = shape.expert_width;
  return shape;
}

Result<std::string> config_json(const ModelConfig& shape, CheckpointForm form) {
  Json config = text_config(shape);
  if (form != CheckpointForm::kBf16) {
    Json text = std::move(config);
    text.erase("architectures");
    config = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
              {"model_type", "qwen3_5_moe"},
              {"tie_word_embeddings", false},
              {"text_config", std::move(text)}};
  }
  if (form == CheckpointForm::kBf16Fused) {
    config["vision_config"] = {{"model_type", "qwen3_5_moe"}, {"depth", 1}, {"hidden_size", 8}};
  }
  if (form == CheckpointForm::kMlx4Bit) {
    config["quantization"] = mlx_block(shape);
    config["quantization_config"] = config["quantization"];
  }
  std::string json = config.dump(1);
  MOE_RETURN_IF_ERROR(parse_model_config(json, "config.json").status());
  return json;
}

}  // namespace moepack::bench
