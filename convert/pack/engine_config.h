// The `config` block of model_weights.json: what the flash-moe engines read of a model's
// dimensions.
#pragma once

#include <cstdint>
#include <string>

#include "formats/config/model_config.h"

namespace moepack {

// Layer i is full attention exactly where (i + 1) is a multiple of this; 0: there is no such
// number.
std::uint32_t attention_interval(const ModelConfig& config);

// A JSON object on one line, keys sorted. full_attention_interval is left out where the layers
// follow no such period.
std::string engine_config_json(const ModelConfig& config);

}  // namespace moepack
