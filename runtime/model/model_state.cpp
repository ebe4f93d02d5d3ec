#include "runtime/model/model_state.h"

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

Result<LayerState> LayerState::create(const ModelConfig& config, LayerType type,
                                      std::uint64_t context) {
  LayerState state;
  if (type == LayerType::kFullAttention) {
    const std::uint64_t bytes = context * kv_row_bytes(config);
    MOE_ASSIGN_OR_RETURN(state.keys, AlignedBuffer::allocate(bytes, kAlignment));
    MOE_ASSIGN_OR_RETURN(state.values, AlignedBuffer::allocate(bytes, kAlignment));
  } else {
    state.conv.resize(conv_floats(config));
    state.delta.resize(delta_floats(config));
  }
  return state;
}

void LayerState::reset() {
  std::fill(conv.begin(), conv.end(), 0.0F);
  std::fill(delta.begin(), delta.end(), 0.0F);
}

Result<ModelState> ModelState::create(const ModelConfig& config, std::uint64_t context) {
  ModelState state;
  state.context_ = context;
  for (const LayerSpec& spec : config.layers) {
    MOE_ASSIGN_OR_RETURN(LayerState layer, LayerState::create(config, layer_type(spec), context));
    state.layers_.push_back(std::move(layer));
  }
  return state;
}

void ModelState::reset() {
  position_ = 0;
  for (LayerState& layer : layers_) layer.reset();
}

std::uint64_t layer_state_bytes(const ModelConfig& config, LayerType type, std::uint64_t context) {
  if (type == LayerType::kFullAttention) return 2 * context * kv_row_bytes(config);
  return (conv_floats(config) + delta_floats(config)) * sizeof(float);
}

StateBytes state_bytes(const ModelConfig& config, std::uint64_t context) {
  StateBytes bytes;
  for (const LayerSpec& spec : config.layers) {
    const LayerType type = layer_type(spec);
    const bool attends = type == LayerType::kFullAttention;
    (attends ? bytes.key_value : bytes.recurrent) += layer_state_bytes(config, type, context);
  }
  return bytes;
}

}  // namespace moepack
