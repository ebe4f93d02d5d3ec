#include "runtime/model_state.h"

#include <algorithm>

namespace moepack {
namespace {

constexpr std::size_t kAlignment = 64;

std::uint64_t kv_row_bytes(const ModelConfig& c) {
  return std::uint64_t{c.num_kv_heads} * c.head_dim * sizeof(float);
}
std::uint64_t conv_floats(const ModelConfig& c) {
  return (std::uint64_t{c.linear_conv_taps} - 1) * conv_channels(c);
}
std::uint64_t delta_floats(const ModelConfig& c) {
  return std::uint64_t{c.linear_value_heads} * c.linear_key_dim * c.linear_value_dim;
}

}  // namespace

Result<ModelState> ModelState::create(const ModelConfig& config, std::uint64_t context) {
  ModelState state;
  state.context_ = context;
  state.layers_.resize(config.num_layers);
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    LayerState& layer = state.layers_[i];
    if (config.layer_types[i] == LayerType::kFullAttention) {
      const std::uint64_t bytes = context * kv_row_bytes(config);
      MOE_ASSIGN_OR_RETURN(layer.keys, AlignedBuffer::allocate(bytes, kAlignment));
      MOE_ASSIGN_OR_RETURN(layer.values, AlignedBuffer::allocate(bytes, kAlignment));
    } else {
      layer.conv.resize(conv_floats(config));
      layer.delta.resize(delta_floats(config));
    }
  }
  state.reset();
  return state;
}

void ModelState::reset() {
  position_ = 0;
  // Keys and values need no clearing: positions beyond position_ are never read.
  for (LayerState& layer : layers_) {
    std::fill(layer.conv.begin(), layer.conv.end(), 0.0F);
    std::fill(layer.delta.begin(), layer.delta.end(), 0.0F);
  }
}

StateBytes state_bytes(const ModelConfig& config, std::uint64_t context) {
  StateBytes bytes;
  for (const LayerType type : config.layer_types) {
    if (type == LayerType::kFullAttention) {
      bytes.key_value += 2 * context * kv_row_bytes(config);
    } else {
      bytes.recurrent += (conv_floats(config) + delta_floats(config)) * sizeof(float);
    }
  }
  return bytes;
}

}  // namespace moepack
