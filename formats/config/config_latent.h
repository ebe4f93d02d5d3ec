// Latent attention in a config.json, under the keys that DeepSeek's models and those after them
// use.
#pragma once

#include <cstdint>

#include "formats/config/config_reader.h"
#include "formats/config/model_config.h"

namespace moepack {

struct LatentDefaults {
  std::uint32_t num_heads = 0;
  std::uint32_t query_rank = 0;  // 0: none
  std::uint32_t kv_rank = 0;
  std::uint32_t plain_dim = 0;   // of a head's query and key, not rotated: qk_nope_head_dim
  std::uint32_t rotary_dim = 0;  // qk_rope_head_dim
  std::uint32_t value_dim = 0;
  double rope_theta = 0;
};

// Fills the numbers of latent attention, and those of its rope, with YaRN. q_lora_rank of null
// means queries without a compressed row. max_position_embeddings must be set.
Status read_latent_attention(const ConfigReader& text, const LatentDefaults& defaults,
                             ModelConfig& model);

}  // namespace moepack
