#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "formats/config/model_config.h"
#include "tests/fuzz/require.h"

using moepack::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto result = moepack::parse_model_config(text, "fuzz");
  if (!result.is_ok()) {
    require(!result.status().message().empty());
    require(result.status().message().find('\n') == std::string_view::npos);
    return 0;
  }
  // What the rest of the program relies on without asking again.
  const moepack::ModelConfig& m = result.value().model;
  require(m.layers.size() == m.num_layers);
  require(m.experts_per_token > 0 && m.experts_per_token <= m.num_experts);
  require(m.num_heads % m.num_kv_heads == 0);
  for (const moepack::LayerSpec& layer : m.layers) {
    if (const auto* experts = std::get_if<moepack::ExpertsSpec>(&layer.feed_forward)) {
      require(experts->has_shared_expert == (m.shared_expert_width != 0));
    } else {
      require(m.dense_width > 0);
    }
    if (moepack::layer_type(layer) == moepack::LayerType::kLatentAttention) {
      require(m.kv_rank > 0 && m.value_dim > 0);
    } else if (moepack::layer_type(layer) == moepack::LayerType::kLinearAttention) {
      require(m.linear_key_heads > 0 && m.linear_value_heads % m.linear_key_heads == 0);
      require(m.linear_conv_taps > 0);
    }
  }
  for (const moepack::HeadSizes& heads : m.head_kinds()) {
    require(heads.kv_heads > 0 && heads.heads % heads.kv_heads == 0);
    require(heads.rotary_dim % 2 == 0 && heads.rotary_dim <= heads.head_dim);
    require(heads.rotated_pairs <= heads.rotary_dim / 2 && heads.rope_theta > 1);
  }
  require(m.rotary_dim > 0 && m.rotary_dim % 2 == 0 && m.rotary_dim <= m.head_dim);
  require(m.hidden_size > 0 && m.vocab_size > 0 && m.expert_width > 0);
  for (const std::int32_t id : m.eos_token_ids) {
    require(id >= 0 && static_cast<std::uint32_t>(id) < m.vocab_size);
  }
  return 0;
}
