// What the model remembers of the tokens it has seen. Reset as a whole between prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"

namespace moepack {

struct LayerState {
  // Full attention: float32 keys (after RoPE) and values, [context, num_kv_heads * head_dim].
  AlignedBuffer keys;
  AlignedBuffer values;
  // GatedDeltaNet: the last taps - 1 inputs of the convolution, [taps - 1, channels], oldest first.
  std::vector<float> conv;
  // GatedDeltaNet: S of every V head, [nv, dk, dv].
  std::vector<float> delta;

  // Memory for `context` tokens (untouched pages cost nothing until they are used).
  static Result<LayerState> create(const ModelConfig& config, LayerType type,
                                   std::uint64_t context);
  // As if no token had ever been seen. Keys and values need no clearing: positions beyond the
  // tokens seen are never read.
  void reset();

  float* key_row(std::size_t position, std::size_t width) {
    return reinterpret_cast<float*>(keys.data()) + position * width;
  }
  float* value_row(std::size_t position, std::size_t width) {
    return reinterpret_cast<float*>(values.data()) + position * width;
  }
};

class ModelState {
 public:
  // Memory for `context` tokens.
  static Result<ModelState> create(const ModelConfig& config, std::uint64_t context);

  // As if no token had ever been seen.
  void reset();

  std::uint64_t context() const { return context_; }
  std::uint64_t position() const { return position_; }  // tokens seen
  void advance(std::uint64_t tokens) { position_ += tokens; }
  LayerState& layer(std::uint32_t index) { return layers_[index]; }

 private:
  std::uint64_t context_ = 0;
  std::uint64_t position_ = 0;
  std::vector<LayerState> layers_;
};

// Bytes that ModelState::create takes.
struct StateBytes {
  std::uint64_t key_value = 0;
  std::uint64_t recurrent = 0;
};
StateBytes state_bytes(const ModelConfig& config, std::uint64_t context);
// Bytes that LayerState::create takes.
std::uint64_t layer_state_bytes(const ModelConfig& config, LayerType type, std::uint64_t context);

// Channels of the convolution of a GatedDeltaNet layer: q and k of all key heads, v of all heads.
inline std::uint64_t conv_channels(const ModelConfig& c) {
  return 2 * std::uint64_t{c.linear_key_heads} * c.linear_key_dim +
         std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
}

}  // namespace moepack
