// Four-bit floats as twice their value around 16; codes of one or two bits around 2, the smallest
// zero that a CodeShape can name beside 0.
#include "formats/weights/ggml_block_decoders.h"
#include "runtime/cpu/code_blocks.h"

namespace moepack::ggml {

namespace {

std::uint8_t e2m1_code(std::uint32_t nibble) {
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(kTwiceE2m1[nibble]) + 16);
}

}  // namespace

void unpack_mxfp4(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_of_e8m0(byte_at(block, 0));
  for (std::size_t i = 0; i < 32; ++i) {
    out.codes[i] = e2m1_code(nibble_at(block + 1, i % 16, i / 16));
  }
}

void unpack_nvfp4(const std::byte* block, const CodeBlock& out) {
  for (std::size_t sub = 0; sub < 4; ++sub) {
    out.scales[sub] = half_of_ue4m3(byte_at(block, sub));
    for (std::size_t i = 0; i < 16; ++i) {
      out.codes[16 * sub + i] = e2m1_code(nibble_at(block + 4, 8 * sub + i % 8, i / 8));
    }
  }
}

namespace {

void repeat(float scale, std::size_t groups, float* out) {
  for (std::size_t g = 0; g < groups; ++g) out[g] = scale;
}

}  // namespace

// Minus or plus one.
void unpack_q1_0(const std::byte* block, const CodeBlock& out) {
  repeat(half_at(block), 4, out.scales);
  for (std::size_t i = 0; i < 128; ++i) {
    out.codes[i] = static_cast<std::uint8_t>(2 * bits_at(block + 2, i / 8, i % 8, 1) + 1);
  }
}

void unpack_q2_0(const std::byte* block, const CodeBlock& out) {
  repeat(half_at(block), 2, out.scales);
  for (std::size_t i = 0; i < 64; ++i) {
    out.codes[i] = static_cast<std::uint8_t>(bits_at(block + 2, i / 4, i % 4, 2) + 1);
  }
}

void unpack_tq1_0(const std::byte* block, const CodeBlock& out) {
  repeat(half_at(block + 52), 8, out.scales);
  for (std::size_t i = 0; i < 256; ++i) {
    out.codes[i] = static_cast<std::uint8_t>(tq1_digit(block, i) + 1);
  }
}

void unpack_tq2_0(const std::byte* block, const CodeBlock& out) {
  repeat(half_at(block + 64), 8, out.scales);
  for (std::size_t i = 0; i < 256; ++i) {
    out.codes[i] = static_cast<std::uint8_t>(two_bits(block, i) + 1);
  }
}

}  // namespace moepack::ggml
