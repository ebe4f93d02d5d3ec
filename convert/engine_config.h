// The `config` block of model_weights.json: what the flash-moe engines read of a model's
// dimensions.
#pragma once

#include <string>

#include "formats/model_config.h"

namespace moepack {

// A JSON object on one line, keys sorted. full_attention_interval is left out where the layers
// follow no such period.
std::string engine_config_json(const ModelConfig& config);

}  // namespace moepack
