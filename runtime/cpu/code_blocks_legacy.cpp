#include "formats/weights/ggml_block_decoders.h"
#include "runtime/cpu/code_blocks.h"

namespace moepack::ggml {

namespace {

void unpack_nibbles(const std::byte* nibbles, std::uint8_t* codes) {
  for (std::size_t i = 0; i < 32; ++i) {
    codes[i] = static_cast<std::uint8_t>(nibble_at(nibbles, i % 16, i / 16));
  }
}
// A word of fifth bits, then nibbles.
void unpack_five_bits(const std::byte* at, std::uint8_t* codes) {
  const auto high = load_le<std::uint32_t>(at);
  for (std::size_t i = 0; i < 32; ++i) {
    codes[i] = static_cast<std::uint8_t>(five_bits(at + 4, high, i));
  }
}

}  // namespace

void unpack_q4_0(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_at(block);
  unpack_nibbles(block + 2, out.codes);
}

void unpack_q4_1(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_at(block);
  out.biases[0] = half_at(block + 2);
  unpack_nibbles(block + 4, out.codes);
}

void unpack_q5_0(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_at(block);
  unpack_five_bits(block + 2, out.codes);
}

void unpack_q5_1(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_at(block);
  out.biases[0] = half_at(block + 2);
  unpack_five_bits(block + 4, out.codes);
}

// A signed byte raised by 128.
void unpack_q8_0(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) {
    out.codes[i] = static_cast<std::uint8_t>(byte_at(block + 2, i) ^ 128U);
  }
}

}  // namespace moepack::ggml
