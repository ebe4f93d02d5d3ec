#include "convert/pack/engine_config.h"

#include <nlohmann/json.hpp>

#include "formats/base/number_text.h"

namespace moepack {
std::uint32_t attention_interval(const ModelConfig& config) {
  std::uint32_t interval = 0;
  for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
    const bool full = config.layer_type(i) == LayerType::kFullAttention;
    if (interval == 0 && full) interval = i + 1;
    if (full != (interval != 0 && (i + 1) % interval == 0)) return 0;
  }
  return interval;
}

std::string engine_config_json(const ModelConfig& c) {
  nlohmann::json json{
      {"hidden_size", c.hidden_size},
      {"num_hidden_layers", c.num_layers},
      {"num_attention_heads", c.num_heads},
      {"num_key_value_heads", c.num_kv_heads},
      {"head_dim", c.head_dim},
      {"vocab_size", c.vocab_size},
      {"rms_norm_eps", shortest_decimal(c.rms_norm_eps)},
      {"num_experts", c.num_experts},
      {"num_experts_per_tok", c.experts_per_token},
      {"moe_intermediate_size", c.expert_width},
      {"shared_expert_intermediate_size", c.shared_expert_width},
      {"linear_num_value_heads", c.linear_value_heads},
      {"linear_num_key_heads", c.linear_key_heads},
      {"linear_key_head_dim", c.linear_key_dim},
      {"linear_value_head_dim", c.linear_value_dim},
      {"linear_conv_kernel_dim", c.linear_conv_taps},
      {"partial_rotary_factor", static_cast<double>(c.rotary_dim) / c.head_dim},
      {"rope_theta", c.rope_theta},
  };
  const std::uint32_t interval = attention_interval(c);
  if (interval != 0) json["full_attention_interval"] = interval;
  nlohmann::json types = nlohmann::json::array();
  for (const LayerSpec& layer : c.layers) {
    types.push_back(layer_type_name(layer_type(layer)));
  }
  json["layer_types"] = std::move(types);
  return json.dump();
}

}  // namespace moepack
