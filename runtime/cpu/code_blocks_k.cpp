#include "formats/weights/ggml_block_decoders.h"
#include "runtime/cpu/code_blocks.h"

namespace moepack::ggml {

void unpack_q2_k(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  for (std::size_t sub = 0; sub < 16; ++sub) {
    out.scales[sub] = d * static_cast<float>(nibble_at(block, sub, 0));
    out.biases[sub] = -(dmin * static_cast<float>(nibble_at(block, sub, 1)));
  }
  for (std::size_t i = 0; i < 256; ++i) {
    out.codes[i] = static_cast<std::uint8_t>(two_bits(block + 16, i));
  }
}

void unpack_q3_k(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block + 108);
  for (std::size_t sub = 0; sub < 16; ++sub) out.scales[sub] = d * packed_scale(block + 96, sub);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint32_t third = bits_at(block, i % 32, i / 32, 1);
    out.codes[i] = static_cast<std::uint8_t>(two_bits(block + 32, i) | (third << 2));
  }
}

namespace {

// Q4_K, Q5_K: d, dmin, eight pairs of six bits.
void unpack_pairs(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin pair = packed_pair(block + 4, sub);
    out.scales[sub] = d * static_cast<float>(pair.scale);
    out.biases[sub] = -(dmin * static_cast<float>(pair.min));
  }
}

}  // namespace

void unpack_q4_k(const std::byte* block, const CodeBlock& out) {
  unpack_pairs(block, out);
  for (std::size_t i = 0; i < 256; ++i) {
    out.codes[i] =
        static_cast<std::uint8_t>(nibble_at(block + 16, i / 64 * 32 + i % 32, i / 32 % 2));
  }
}

void unpack_q5_k(const std::byte* block, const CodeBlock& out) {
  unpack_pairs(block, out);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint32_t low = nibble_at(block + 48, i / 64 * 32 + i % 32, i / 32 % 2);
    const std::uint32_t fifth = bits_at(block + 16, i % 32, i / 32, 1);
    out.codes[i] = static_cast<std::uint8_t>(low | (fifth << 4));
  }
}

void unpack_q6_k(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block + 208);
  for (std::size_t sub = 0; sub < 16; ++sub) {
    out.scales[sub] = d * static_cast<float>(load_le<std::int8_t>(block + 192 + sub));
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128;
    const std::size_t r = i % 128;
    const std::uint32_t low = nibble_at(block, 64 * half + r % 64, r / 64);
    const std::uint32_t high = bits_at(block + 128, 32 * half + r % 32, r / 32, 2);
    out.codes[i] = static_cast<std::uint8_t>(low | (high << 4));
  }
}

}  // namespace moepack::ggml
