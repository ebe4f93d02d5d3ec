// Parts of a config.json that several families share.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/config/config_reader.h"
#include "formats/config/model_config.h"

namespace moepack {

struct RopeDefaults {
  double theta = 0;
  double partial_rotary_factor = 1;
};

// Fills rope_theta and rotary_dim = head_dim * partial_rotary_factor (head_dim must be set). The
// two settings are looked for in rope_parameters, rope_scaling and at the top level, as versions of
// transformers differ; places that disagree are an error. Rope types other than "default" are
// kUnsupported.
Status read_rope(const ConfigReader& text, const RopeDefaults& defaults, ModelConfig& model);

// Fills layer_types (num_layers must be set) from the list of that name, else from
// full_attention_interval: layer i is full attention iff (i + 1) % interval == 0.
Status read_layer_types(const ConfigReader& text, std::uint32_t default_interval,
                        ModelConfig& model);

// Refuses configurations in which some layers have a dense network in place of experts
// (mlp_only_layers, decoder_sparse_step): kUnsupported.
Status refuse_dense_layers(const ConfigReader& text);

// Adds the ids of eos_token_id (number, list or absent) to eos_token_ids; vocab_size must be set.
Status read_eos_token_ids(const ConfigReader& object, ModelConfig& model);

// The `quantization` and `quantization_config` blocks of the outer object and of its text_config
// (nullptr when flat). Several blocks must say the same. nullopt when there is none.
Result<std::optional<QuantizationConfig>> read_quantization(const ConfigReader& outer,
                                                            const ConfigReader* text);

// Families: each fills every field of ModelConfig but model_type and eos_token_ids.
Status read_qwen3_5_moe_config(const ConfigReader& text, ModelConfig& model);
Status read_qwen3_next_config(const ConfigReader& text, ModelConfig& model);

}  // namespace moepack
