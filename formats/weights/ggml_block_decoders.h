// The decoders of ggml's blocks, one function a type, by family: each writes the weights of one
// block that lies at any alignment. formats/weights/ggml_blocks.h chooses among them.
//
// Layouts are given as fields with their byte offsets; numbers are little-endian, `d` is a binary16
// scale. Arithmetic is float32, each operation rounded, in the order of ggml's dequantize_row_*.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"

namespace moepack::ggml {

// formats/weights/ggml_legacy_blocks.cpp: 32 weights.
void decode_q4_0(const std::byte* block, float* out);
void decode_q4_1(const std::byte* block, float* out);
void decode_q5_0(const std::byte* block, float* out);
void decode_q5_1(const std::byte* block, float* out);
void decode_q8_0(const std::byte* block, float* out);

// formats/weights/ggml_k_blocks.cpp: 256 weights.
void decode_q2_k(const std::byte* block, float* out);
void decode_q3_k(const std::byte* block, float* out);
void decode_q4_k(const std::byte* block, float* out);
void decode_q5_k(const std::byte* block, float* out);
void decode_q6_k(const std::byte* block, float* out);

// formats/weights/ggml_iq_blocks.cpp: 256 weights, IQ4_NL 32.
void decode_iq1_s(const std::byte* block, float* out);
void decode_iq1_m(const std::byte* block, float* out);
void decode_iq2_xxs(const std::byte* block, float* out);
void decode_iq2_xs(const std::byte* block, float* out);
void decode_iq2_s(const std::byte* block, float* out);
void decode_iq3_xxs(const std::byte* block, float* out);
void decode_iq3_s(const std::byte* block, float* out);
void decode_iq4_nl(const std::byte* block, float* out);
void decode_iq4_xs(const std::byte* block, float* out);

// formats/weights/ggml_small_blocks.cpp: four-bit floats and codes of one or two bits.
void decode_mxfp4(const std::byte* block, float* out);  // 32
void decode_nvfp4(const std::byte* block, float* out);  // 64
void decode_q1_0(const std::byte* block, float* out);   // 128
void decode_q2_0(const std::byte* block, float* out);   // 64
void decode_tq1_0(const std::byte* block, float* out);  // 256
void decode_tq2_0(const std::byte* block, float* out);  // 256

// ---- fields -------------------------------------------------------------------------------------

inline std::uint32_t byte_at(const std::byte* at, std::size_t index) {
  return std::to_integer<std::uint32_t>(at[index]);
}
inline float half_at(const std::byte* at) { return f16_to_f32(load_le<std::uint16_t>(at)); }
// The low (0) or high (1) nibble of byte `index`.
inline std::uint32_t nibble_at(const std::byte* at, std::size_t index, std::size_t half) {
  return (byte_at(at, index) >> (4 * half)) & 15U;
}
// `bits` (1 or 2) bits at place `place` of byte `index`, places counted from the lowest.
inline std::uint32_t bits_at(const std::byte* at, std::size_t index, std::size_t place,
                             std::uint32_t bits) {
  return (byte_at(at, index) >> (bits * place)) & ((1U << bits) - 1U);
}
inline float signed_float(std::uint32_t code, std::int32_t zero) {
  return static_cast<float>(static_cast<std::int32_t>(code) - zero);
}

// ---- fields of families, shared with whoever unpacks codes instead of weights -------------------

struct ScaleAndMin {
  std::uint32_t scale;
  std::uint32_t min;
};
// Pair `j` of the twelve bytes that hold eight pairs of six bits (Q4_K, Q5_K).
inline ScaleAndMin packed_pair(const std::byte* scales, std::size_t j) {
  if (j < 4) return {byte_at(scales, j) & 63U, byte_at(scales, j + 4) & 63U};
  return {(byte_at(scales, j + 4) & 15U) | ((byte_at(scales, j - 4) >> 6) << 4),
          (byte_at(scales, j + 4) >> 4) | ((byte_at(scales, j) >> 6) << 4)};
}
// Scale `j` of the twelve bytes that hold sixteen of six bits (Q3_K), less 32.
inline float packed_scale(const std::byte* scales, std::size_t j) {
  const std::uint32_t high = bits_at(scales, 8 + j % 4, j / 4, 2) << 4;
  return signed_float(nibble_at(scales, j % 8, j / 8) | high, 32);
}
// Two bits of weight i where each byte holds weights 32 apart, and 32 bytes make 128 weights.
inline std::uint32_t two_bits(const std::byte* codes, std::size_t i) {
  return bits_at(codes, i / 128 * 32 + i % 32, i % 128 / 32, 2);
}
// Q5_0, Q5_1: nibbles as in Q4_0, and the fifth bits of a little-endian word.
inline std::uint32_t five_bits(const std::byte* nibbles, std::uint32_t high, std::size_t i) {
  return nibble_at(nibbles, i % 16, i / 16) | (((high >> i) & 1U) << 4);
}

// What the digits of the grids and the nibbles of IQ4 stand for.
inline constexpr std::array<float, 4> kIq2Values{8, 25, 43, 0};  // no entry has digit 3
inline constexpr std::array<float, 8> kIq3XxsValues{4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<float, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1 (MXFP4, NVFP4).
inline constexpr std::array<float, 16> kTwiceE2m1{0, 1,  2,  3,  4,  6,  8,  12,
                                                  0, -1, -2, -3, -4, -6, -8, -12};

// Seven sign bits stand for eight: the number of minus signs is even.
inline std::uint32_t even_signs(std::uint32_t seven) {
  return seven | (static_cast<std::uint32_t>(std::popcount(seven) % 2) << 7);
}
// (1/2 + code) / 4 of d: the scale of half a sub-block in IQ2_XS and IQ2_S, four bits each.
inline float half_scale(const std::byte* scales, float d, std::size_t half) {
  const auto code = static_cast<float>(nibble_at(scales, half / 2, half % 2));
  return d * (0.5F + code) * 0.25F;
}
// IQ1_M: quarters of d in the top four bits of four words.
inline float spread_half_at(const std::byte* words) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint32_t word = load_le<std::uint16_t>(words + 2 * i);
    bits |= (word >> 12) << (4 * i);
  }
  return f16_to_f32(static_cast<std::uint16_t>(bits));
}

// 2^(e - 127) of the byte e (MXFP4), halved because the table is doubled; 255 is a number like the
// others.
inline float half_of_e8m0(std::uint32_t e) { return std::ldexp(1.0F, static_cast<int>(e) - 128); }
// Half of the unsigned E4M3 float `bits` (NVFP4): bit 7 is not looked at, and the code of NaN is
// zero, as in ggml.
inline float half_of_ue4m3(std::uint32_t bits) {
  if (bits == 0 || bits == 0x7f) return 0.0F;
  const std::uint32_t exponent = (bits >> 3) & 15U;
  const auto mantissa = static_cast<float>(bits & 7U);
  const float value = exponent == 0
                          ? mantissa * 0x1p-9F
                          : std::ldexp(1.0F + mantissa / 8.0F, static_cast<int>(exponent) - 7);
  return value * 0.5F;
}

// Digit n of the base-three fraction that a byte holds (TQ1_0): the byte is the digits' value times
// 256 / 243, rounded up, so that multiplying shifts digits out on top.
inline std::uint32_t ternary_digit(std::uint32_t byte, std::size_t n) {
  constexpr std::array<std::uint32_t, 5> kPowers{1, 3, 9, 27, 81};
  const std::uint32_t rest = (byte * kPowers[n]) & 255U;
  return (rest * 3) >> 8;
}
// Digit of weight i of a block of TQ1_0. The first 32 bytes hold five weights each, 32 apart, the
// next 16 weights 16 apart, and the four bytes @48 four weights, four apart.
inline std::uint32_t tq1_digit(const std::byte* block, std::size_t i) {
  if (i < 160) return ternary_digit(byte_at(block, i % 32), i / 32);
  if (i < 240) return ternary_digit(byte_at(block + 32, i % 16), (i - 160) / 16);
  return ternary_digit(byte_at(block + 48, i % 4), (i - 240) / 4);
}

}  // namespace moepack::ggml
