// The oldest block formats: 32 weights with one scale. Byte j of the nibbles holds weight j in its
// low half and weight j + 16 in its high half.
#include "formats/weights/ggml_block_decoders.h"

namespace moepack::ggml {
// d @0, nibbles[16] @2
void decode_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = d * signed_float(nibble_at(block + 2, i % 16, i / 16), 8);
  }
}

// d @0, minimum @2, nibbles[16] @4
void decode_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float min = half_at(block + 2);
  for (std::size_t i = 0; i < 32; ++i) {
    const float product = d * static_cast<float>(nibble_at(block + 4, i % 16, i / 16));
    out[i] = product + min;
  }
}

// d @0, u32 fifth bits @2, nibbles[16] @6
void decode_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  const auto high = load_le<std::uint32_t>(block + 2);
  for (std::size_t i = 0; i < 32; ++i) out[i] = d * signed_float(five_bits(block + 6, high, i), 16);
}

// d @0, minimum @2, u32 fifth bits @4, nibbles[16] @8
void decode_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float min = half_at(block + 2);
  const auto high = load_le<std::uint32_t>(block + 4);
  for (std::size_t i = 0; i < 32; ++i) {
    const float product = d * static_cast<float>(five_bits(block + 8, high, i));
    out[i] = product + min;
  }
}

// d @0, signed bytes[32] @2
void decode_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(load_le<std::int8_t>(block + 2 + i));
  }
}

}  // namespace moepack::ggml
