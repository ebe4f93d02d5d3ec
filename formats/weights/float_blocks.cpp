#include "formats/weights/float_blocks.h"

#include <bit>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"

namespace moepack {
namespace {

std::uint8_t u8_at(const std::byte* at, std::size_t index) {
  return std::to_integer<std::uint8_t>(at[index]);
}

}  // namespace

float e8m0_to_f32(std::uint8_t e) {
  // As the exponent of a float32; 0 is half of its smallest normal number.
  if (e == 0) return 0x1p-127F;
  const std::uint32_t bits = static_cast<std::uint32_t>(e) << 23;
  return std::bit_cast<float>(e == 255 ? bits | 0x00400000U : bits);
}

const std::array<float, 256>& f8_e4m3_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = f8_e4m3_to_f32(static_cast<std::uint8_t>(i));
    }
    return values;
  }();
  return kValues;
}

void decode_f8_e4m3(const std::byte* block, float* out) {
  const std::array<float, 256>& values = f8_e4m3_values();
  const auto scale = load_le<float>(block);
  for (std::size_t i = 0; i < kF8Weights; ++i) out[i] = values[u8_at(block, 4 + i)] * scale;
}

void decode_mxfp8(const std::byte* block, float* out) {
  const std::array<float, 256>& values = f8_e4m3_values();
  const float scale = e8m0_to_f32(u8_at(block, 0));
  for (std::size_t i = 0; i < kMxfp8Weights; ++i) out[i] = values[u8_at(block, 1 + i)] * scale;
}

void decode_nvfp4_scaled(const std::byte* block, float* out) {
  const std::array<float, 256>& values = f8_e4m3_values();
  const auto factor = load_le<float>(block);
  for (std::size_t group = 0; group < kNvfp4ScaledWeights / kNvfp4Group; ++group) {
    const float code = values[u8_at(block, 4 + group)];
    const float scale = factor < 0 ? code / -factor : code * factor;
    const std::byte* nibbles = block + 12 + group * kNvfp4Group / 2;
    float* to = out + group * kNvfp4Group;
    for (std::size_t j = 0; j < kNvfp4Group / 2; ++j) {
      const std::uint8_t pair = u8_at(nibbles, j);
      to[2 * j] = kE2m1[pair & 15U] * scale;
      to[2 * j + 1] = kE2m1[pair >> 4] * scale;
    }
  }
}

}  // namespace moepack
