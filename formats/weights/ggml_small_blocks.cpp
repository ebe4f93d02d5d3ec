// Four-bit floats (MXFP4, NVFP4), and codes of one bit, two bits and three values.
#include <cmath>

#include "formats/weights/ggml_block_decoders.h"

namespace moepack::ggml {
namespace {

// Twice the values of E2M1.
constexpr std::array<float, 16> kTwiceE2m1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of the unsigned E4M3 float `bits`: bit 7 is not looked at, and the code of NaN is zero, as
// in ggml.
float half_of_ue4m3(std::uint32_t bits) {
  if (bits == 0 || bits == 0x7f) return 0.0F;
  const std::uint32_t exponent = (bits >> 3) & 15U;
  const auto mantissa = static_cast<float>(bits & 7U);
  const float value = exponent == 0
                          ? mantissa * 0x1p-9F
                          : std::ldexp(1.0F + mantissa / 8.0F, static_cast<int>(exponent) - 7);
  return value * 0.5F;
}

// Digit n of the base-three fraction that a byte holds, less one: the byte is the digits' value
// times 256 / 243, rounded up, so that multiplying shifts digits out on top.
float ternary_digit(std::uint32_t byte, std::size_t n) {
  constexpr std::array<std::uint32_t, 5> kPowers{1, 3, 9, 27, 81};
  const std::uint32_t rest = (byte * kPowers[n]) & 255U;
  return signed_float((rest * 3) >> 8, 1);
}

}  // namespace

// Exponent u8 @0, nibbles[16] @1 as in Q4_0. The scale is 2^(e - 127), halved because the table is
// doubled; e = 255 is a number like the others.
void decode_mxfp4(const std::byte* block, float* out) {
  const float scale = std::ldexp(1.0F, static_cast<int>(byte_at(block, 0)) - 128);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = scale * kTwiceE2m1[nibble_at(block + 1, i % 16, i / 16)];
  }
}

// Four sub-blocks of 16: UE4M3 scales[4] @0, nibbles[32] @4, in each sub-block as in Q4_0. A factor
// of the whole tensor is a tensor of its own.
void decode_nvfp4(const std::byte* block, float* out) {
  for (std::size_t sub = 0; sub < 4; ++sub) {
    const float scale = half_of_ue4m3(byte_at(block, sub));
    for (std::size_t i = 0; i < 16; ++i) {
      out[16 * sub + i] = scale * kTwiceE2m1[nibble_at(block + 4, 8 * sub + i % 8, i / 8)];
    }
  }
}

// d @0, bits[16] @2, the first weight lowest: set d, else -d
void decode_q1_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 128; ++i) out[i] = bits_at(block + 2, i / 8, i % 8, 1) != 0 ? d : -d;
}

// d @0, two-bit codes[16] @2, the first weight lowest
void decode_q2_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 64; ++i) {
    out[i] = d * signed_float(bits_at(block + 2, i / 4, i % 4, 2), 1);
  }
}

// Five digits a byte [48] @0, four a byte [4] @48, d @52. The first 32 bytes hold weights 32 apart,
// the next 16 weights 16 apart, the last four weights four apart.
void decode_tq1_0(const std::byte* block, float* out) {
  const float d = half_at(block + 52);
  for (std::size_t i = 0; i < 160; ++i) {
    out[i] = d * ternary_digit(byte_at(block, i % 32), i / 32);
  }
  for (std::size_t i = 0; i < 80; ++i) {
    out[160 + i] = d * ternary_digit(byte_at(block + 32, i % 16), i / 16);
  }
  for (std::size_t i = 0; i < 16; ++i) {
    out[240 + i] = d * ternary_digit(byte_at(block + 48, i % 4), i / 4);
  }
}

// Two-bit codes[64] @0 (per 128 weights 32 bytes, each with weights 32 apart), d @64
void decode_tq2_0(const std::byte* block, float* out) {
  const float d = half_at(block + 64);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint32_t code = bits_at(block, i / 128 * 32 + i % 32, i % 128 / 32, 2);
    out[i] = d * signed_float(code, 1);
  }
}

}  // namespace moepack::ggml
