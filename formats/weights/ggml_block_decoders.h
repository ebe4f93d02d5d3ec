// The decoders of ggml's blocks, one function a type, by family: each writes the weights of one
// block that lies at any alignment. formats/weights/ggml_blocks.h chooses among them.
//
// Layouts are given as fields with their byte offsets; numbers are little-endian, `d` is a binary16
// scale. Arithmetic is float32, each operation rounded, in the order of ggml's dequantize_row_*.
#pragma once

#include <array>
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

}  // namespace moepack::ggml
