// The K-quants: 256 weights in sub-blocks of 16 or 32, whose scales (and minima) are codes
// themselves.
#include "formats/weights/ggml_block_decoders.h"

namespace moepack::ggml {
// 16 sub-blocks of 16: scale (low) and minimum (high) of four bits [16] @0, two-bit codes[64] @16,
// d @80, dmin @82
void decode_q2_k(const std::byte* block, float* out) {
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  for (std::size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(nibble_at(block, sub, 0));
    const float min = dmin * static_cast<float>(nibble_at(block, sub, 1));
    for (std::size_t i = 16 * sub; i < 16 * sub + 16; ++i) {
      const float product = scale * static_cast<float>(two_bits(block + 16, i));
      out[i] = product - min;
    }
  }
}

// 16 sub-blocks of 16: third bits[32] @0, two-bit codes[64] @32, scales[12] @96, d @108. A third
// bit that is not set takes four off.
void decode_q3_k(const std::byte* block, float* out) {
  const float d = half_at(block + 108);
  for (std::size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * packed_scale(block + 96, sub);
    for (std::size_t i = 16 * sub; i < 16 * sub + 16; ++i) {
      const std::uint32_t third = bits_at(block, i % 32, i / 32, 1);
      out[i] = scale * signed_float(two_bits(block + 32, i) + 4 * third, 4);
    }
  }
}

// Eight sub-blocks of 32: d @0, dmin @2, scales and minima[12] @4, nibbles[128] @16
void decode_q4_k(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin pair = packed_pair(block + 4, sub);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t code = nibble_at(block + 16, sub / 2 * 32 + i, sub % 2);
      const float product = scale * static_cast<float>(code);
      out[sub * 32 + i] = product - min;
    }
  }
}

// As Q4_K with fifth bits: d @0, dmin @2, scales and minima[12] @4, fifth bits[32] @16,
// nibbles[128] @48
void decode_q5_k(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin pair = packed_pair(block + 4, sub);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t code =
          nibble_at(block + 48, sub / 2 * 32 + i, sub % 2) | (bits_at(block + 16, i, sub, 1) << 4);
      const float product = scale * static_cast<float>(code);
      out[sub * 32 + i] = product - min;
    }
  }
}

// 16 sub-blocks of 16: nibbles[128] @0, upper two bits[64] @128, signed scales[16] @192, d @208.
// Per 128 weights, 64 bytes of nibbles and 32 of upper bits.
void decode_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block + 208);
  for (std::size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(load_le<std::int8_t>(block + 192 + sub));
    for (std::size_t i = 16 * sub; i < 16 * sub + 16; ++i) {
      const std::size_t half = i / 128;
      const std::size_t r = i % 128;
      const std::uint32_t code = nibble_at(block, 64 * half + r % 64, r / 64) |
                                 (bits_at(block + 128, 32 * half + r % 32, r / 32, 2) << 4);
      out[i] = scale * signed_float(code, 32);
    }
  }
}

}  // namespace moepack::ggml
