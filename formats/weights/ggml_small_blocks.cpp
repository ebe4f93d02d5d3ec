// Four-bit floats (MXFP4, NVFP4), and codes of one bit, two bits and three values.
#include "formats/weights/ggml_block_decoders.h"

namespace moepack::ggml {
// Exponent u8 @0, nibbles[16] @1 as in Q4_0
void decode_mxfp4(const std::byte* block, float* out) {
  const float scale = half_of_e8m0(byte_at(block, 0));
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

// Five digits a byte [48] @0, four a byte [4] @48, d @52
void decode_tq1_0(const std::byte* block, float* out) {
  const float d = half_at(block + 52);
  for (std::size_t i = 0; i < 256; ++i) out[i] = d * signed_float(tq1_digit(block, i), 1);
}

// Two-bit codes[64] @0 (per 128 weights 32 bytes, each with weights 32 apart), d @64
void decode_tq2_0(const std::byte* block, float* out) {
  const float d = half_at(block + 64);
  for (std::size_t i = 0; i < 256; ++i) out[i] = d * signed_float(two_bits(block, i), 1);
}

}  // namespace moepack::ggml
