// The shapes of generated checkpoints: published Qwen3.5-MoE models, and config.json of any shape.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "formats/config/model_config.h"

namespace moepack::bench {

// How a checkpoint names and stores its tensors.
enum class CheckpointForm {
  kBf16,       // text model, prefix `model.`, one tensor per expert and projection
  kBf16Fused,  // as on the hub: `model.language_model.`, gate_up_proj and down_proj of all experts
  kMlx4Bit,    // as mlx-lm writes: stacked switch_mlp, affine 4-bit group 64, 8-bit routers, w + 1
};

constexpr std::array<std::string_view, 3> kPresets{"35b-a3b", "122b-a10b", "397b-a17b"};

// The shape of a published model; nullopt for another name. eos_token_ids stay empty. Sources: for
// 35b-a3b and 397b-a17b their config.json. For 122b-a10b hidden size, layers and experts are
// published; expert width 1024, 2 KV heads and 64 linear value heads follow from the published
// total of 122.11 billion parameters, which they give exactly.
std::optional<ModelConfig> preset_shape(std::string_view preset);

// Sets the number of layers, with full attention in every fourth one, as in all published models.
void set_layers(std::uint32_t num_layers, ModelConfig& shape);

// The text of config.json, checked by the reader that every program uses: kCorrupt, naming the key,
// when the dimensions contradict each other.
Result<std::string> config_json(const ModelConfig& shape, CheckpointForm form);

}  // namespace moepack::bench
