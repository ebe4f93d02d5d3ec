// Blocks of our own, for what checkpoints hold and no block of ggml does: small floats whose scale
// is a float32, or several. Numbers are little-endian, floats of eight bits are E4M3
// (formats/base/dtype.h). Every product and quotient is rounded to float32, so that the values are
// those that the checkpoints mean, bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace moepack {

// F8_E4M3, 128 weights in 132 bytes: scale f32 @0, codes[128] @4. w = e4m3(code) * scale.
constexpr std::size_t kF8Weights = 128;
void decode_f8_e4m3(const std::byte* block, float* out);

// MXFP8, 32 weights in 33 bytes: exponent u8 @0, codes[32] @1. w = e4m3(code) * 2^(exponent - 127);
// the exponent 255 is NaN.
constexpr std::size_t kMxfp8Weights = 32;
void decode_mxfp8(const std::byte* block, float* out);

// NVFP4_SCALED, 128 weights in 76 bytes: factor f32 @0, scales[8] @4 (E4M3, of 16 weights each),
// nibbles[64] @12, byte j holds weights 2j (low) and 2j + 1.
//   factor >= 0: w = e2m1(nibble) * (e4m3(scale) * factor)
//   factor < 0:  w = e2m1(nibble) * (e4m3(scale) / -factor)
constexpr std::size_t kNvfp4ScaledWeights = 128;
constexpr std::size_t kNvfp4Group = 16;
void decode_nvfp4_scaled(const std::byte* block, float* out);

// The values of E2M1 (MXFP4, NVFP4).
inline constexpr std::array<float, 16> kE2m1{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                             4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                             -2.0F, -3.0F, -4.0F, -6.0F};

// 2^(e - 127) of the byte e; NaN for 255.
float e8m0_to_f32(std::uint8_t e);
// All values of E4M3, by code.
const std::array<float, 256>& f8_e4m3_values();

}  // namespace moepack
