// The largest of what layers with attention have, for memory that all layers share.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/config/model_config.h"

namespace moepack {

// Heads with full attention, those that differ; the model's where it says nothing of layers.
std::vector<HeadSizes> attention_heads(const ModelConfig& config);

// Of a token in a layer. Latent attention has queries alone, all of a model's alike.
struct AttentionWidths {
  std::uint64_t queries = 0;   // values of all query heads
  std::uint64_t keys = 0;      // of all keys, and of all values
  std::uint64_t heads = 0;     // of queries
  std::uint64_t head_dim = 0;  // values of a head
};
AttentionWidths attention_widths(const ModelConfig& config);

}  // namespace moepack
