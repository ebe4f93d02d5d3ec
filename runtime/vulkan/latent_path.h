// Latent attention on the device (runtime/model/latent_attention.h), between its projections: both
// paths record the same kernels (shaders/latent_args.h) but for how keys are shared out. Few rows
// split the keys among work groups; the rows of prompts form tiles.
#pragma once

#include <cstdint>
#include <string>

#include "formats/config/model_config.h"
#include "runtime/vulkan/path.h"

namespace moepack {

// "" when the kernels can compute the model's latent attention, else what they cannot.
std::string missing_latent_part(const ModelConfig& config);

// kSplit: each row by itself, its keys shared out; for up to kFewRows rows. kTiles: of prompts.
enum class LatentForm : std::uint8_t { kSplit, kTiles };

// mixed [T, nq * dv] = the attended values of every head, of the queries at
// DeviceScratch::projected and the compressed rows at DeviceScratch::keys, which are normed,
// rotated and kept. With barriers between the kernels and behind them.
void record_latent(const PathParts& parts, CommandList& list, const BatchShape& shape,
                   std::uint32_t layer, LatentForm form);

}  // namespace moepack
