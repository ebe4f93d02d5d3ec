// What the families with GatedDeltaNet share: qwen3_5_moe (Qwen3.5 and Qwen3.6 MoE) and qwen3_next.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "formats/config/architecture.h"

namespace moepack {

// Values of config.json that stand for absent keys, where the two differ.
struct GatedDeltaDefaults {
  std::uint32_t vocab_size;
  std::uint32_t num_layers;
  std::uint32_t max_position_embeddings;
  std::uint32_t num_experts;
  std::uint32_t experts_per_token;
  double rope_theta;
};

Status read_gated_delta_config(const ConfigReader& text, const GatedDeltaDefaults& defaults,
                               ModelConfig& model);

extern const std::array<ResidentRule, 25> kGatedDeltaResidents;
extern const std::array<PrefixRule, 5> kGatedDeltaPrefixes;
extern const std::array<std::string_view, 4> kGatedDeltaSkipped;
extern const std::array<std::string_view, 5> kGatedDeltaPrediction;

}  // namespace moepack
