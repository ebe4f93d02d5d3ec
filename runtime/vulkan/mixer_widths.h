// How many values a token's mixer and experts write down, the most of all layers, for memory that
// all layers share or that each has alike.
#pragma once

#include <cstdint>

#include "formats/config/model_config.h"

namespace moepack {

// Of a token. Projections: q of attention with its gate, or the channels of GatedDeltaNet, or q of
// latent attention; keys are also the compressed row of latent attention.
struct MixerWidths {
  std::uint64_t projected = 0;
  std::uint64_t keys = 0;
  std::uint64_t values = 0;
  std::uint64_t delta_values = 0;  // of all V heads of GatedDeltaNet
  std::uint64_t latent = 0;        // of a compressed row
  std::uint64_t mixed = 0;         // what the output projection reads
};
MixerWidths mixer_widths(const ModelConfig& config);

// Activations of `rows` tokens in experts whose width is not that of the routed ones: a shared one
// of `shared_width`, or a dense network.
std::uint64_t other_activations(const ModelConfig& config, std::uint64_t shared_width,
                                std::uint64_t rows);

}  // namespace moepack
