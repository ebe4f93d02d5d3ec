// The state of a GatedDeltaNet layer as the device keeps it (shaders/delta_args.h), from and to the
// form in which the CPU keeps it and sequences are saved (LayerState::conv and delta).
#pragma once

#include <cstdint>
#include <span>

namespace moepack {

struct DeltaStateShape {
  std::uint32_t key_heads = 0;
  std::uint32_t value_heads = 0;  // a multiple of key_heads
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t taps = 0;  // >= 1
  // V head h has key head h % key_heads; otherwise h / (value_heads / key_heads).
  bool is_tiled = false;

  std::uint64_t channels() const {
    return 2 * std::uint64_t{key_heads} * key_dim + std::uint64_t{value_heads} * value_dim;
  }
  std::uint64_t conv_floats() const { return (taps - 1) * channels(); }
  std::uint64_t delta_floats() const { return std::uint64_t{value_heads} * key_dim * value_dim; }
  // Of the device's form.
  std::uint64_t device_floats() const;
};

// conv: [taps - 1, channels], oldest first; delta: [value_heads, key_dim, value_dim]; out:
// [device_floats()]. Pure.
void pack_delta_state(const DeltaStateShape& shape, std::span<const float> conv,
                      std::span<const float> delta, std::span<float> out);
// The same backwards.
void unpack_delta_state(const DeltaStateShape& shape, std::span<const float> state,
                        std::span<float> conv, std::span<float> delta);

}  // namespace moepack
