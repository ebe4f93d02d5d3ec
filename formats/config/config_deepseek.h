// Parts of a config.json as DeepSeek-V3 names them; families after it use the same keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/config/config_reader.h"
#include "formats/config/model_config.h"

namespace moepack {

// The router of DeepSeek-V3, whose scores are sigmoids. num_experts must be set.
Result<SigmoidRouterSpec> read_sigmoid_router(const ConfigReader& text,
                                              const SigmoidRouterSpec& defaults,
                                              std::uint32_t num_experts);

// Fills shared_expert_width = n_shared_experts * expert_width, which must be set; a count of 0, or
// none stated, where the default is 0, means that there is no shared expert.
Status read_shared_experts(const ConfigReader& text, std::uint32_t default_count,
                           ModelConfig& model);

struct LeadingDenseDefaults {
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
};
// Fills layers, the first first_k_dense_replace of which have a dense network, and dense_width
// where there are such layers. num_layers must be set.
Status read_leading_dense(const ConfigReader& text, const LeadingDenseDefaults& defaults,
                          const LayerSpec& dense, const LayerSpec& sparse, ModelConfig& model);

struct LatentDefaults {
  std::uint32_t num_heads = 0;
  std::uint32_t query_rank = 0;  // 0: none
  std::uint32_t kv_rank = 0;
  std::uint32_t nope_dim = 0;  // of a head's query that is not rotated
  std::uint32_t rope_dim = 0;
  std::uint32_t value_dim = 0;
  double rope_theta = 0;
};
// Fills what latent attention has, rope and YaRN included. q_lora_rank of null means queries
// without a compressed row.
Status read_latent_attention(const ConfigReader& text, const LatentDefaults& defaults,
                             ModelConfig& model);

}  // namespace moepack
