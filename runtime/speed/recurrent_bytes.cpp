#include "runtime/speed/recurrent_bytes.h"

#include <algorithm>
#include <cstdint>

#include "runtime/model/layer_state.h"

namespace moepack {

double recurrent_token_bytes(const ModelConfig& c, DeltaForm form) {
  const auto layers = static_cast<double>(std::count_if(
      c.layers.begin(), c.layers.end(),
      [](const LayerSpec& spec) { return layer_type(spec) == LayerType::kLinearAttention; }));
  const auto bytes = [](std::uint64_t floats) {
    return static_cast<double>(floats * sizeof(float));
  };
  const std::uint64_t value_width = std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
  const std::uint64_t key_width = std::uint64_t{c.linear_key_heads} * c.linear_key_dim;
  const double window =
      layers == 0 ? 0 : bytes((c.linear_conv_taps - std::uint64_t{1}) * conv_channels(c));
  const double state = bytes(value_width * c.linear_key_dim);
  if (form == DeltaForm::kTokens) return layers * 2 * (window + state);
  const double row = bytes(key_width + value_width);
  const double rows_read = (kDeltaBlock - 1) / 2.0;
  return layers * (2 * window + state * (1 + 1.0 / kDeltaBlock) + row * (1 + rows_read));
}

}  // namespace moepack
