// What the metadata of a GGUF file say of families that have full attention in every layer.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "convert/source/gguf_keys.h"
#include "formats/config/architecture.h"

namespace moepack {

// Adds attention and experts to `config`, which has the sizes of the model, under the names that
// the family's config.json has for them. Errors as those of gguf_config_text.
Status add_gguf_family(const GgufKeys& keys, const Architecture& names,
                       nlohmann::ordered_json& config);

// The factor of which head_dim gives the number of rotated dimensions, rounded towards zero.
double gguf_rotary_factor(std::uint64_t rotated, std::uint64_t head_dim);

}  // namespace moepack
