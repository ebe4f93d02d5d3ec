// Codes of grids and tables are their values with the sign applied, raised by the format's zero:
// IQ2 64 (values 8, 25, 43), IQ3_XXS 32 (values halved, the scale doubled), IQ3_S 16, IQ4 128, and
// IQ1 16, whose values -1, 0, 1 around +-1/8 are whole numbers of eighths.
#include "formats/weights/ggml_block_decoders.h"
#include "formats/weights/ggml_grids.h"
#include "runtime/cpu/code_blocks.h"

namespace moepack::ggml {

namespace {

std::uint8_t raised(std::int32_t value, std::int32_t zero) {
  return static_cast<std::uint8_t>(value + zero);
}
// A magnitude that is negative where bit j of `signs` is set.
std::uint8_t signed_code(float magnitude, std::uint32_t signs, std::size_t j, std::int32_t zero) {
  const auto value = static_cast<std::int32_t>(magnitude);
  return raised(((signs >> j) & 1U) != 0 ? -value : value, zero);
}

void unpack_eight(std::uint32_t entry, std::uint32_t signs, std::uint8_t* codes) {
  for (std::size_t j = 0; j < 8; ++j) {
    codes[j] = signed_code(kIq2Values[(entry >> (2 * j)) & 3U], signs, j, 64);
  }
}
void unpack_eight_ternary(std::uint32_t entry, bool minus_delta, std::uint8_t* codes) {
  for (std::size_t j = 0; j < 8; ++j) {
    const auto digit = static_cast<std::int32_t>((entry >> (2 * j)) & 3U);
    codes[j] = raised(8 * (digit - 1) + (minus_delta ? -1 : 1), 16);
  }
}
void unpack_iq4_nibbles(const std::byte* nibbles, std::uint8_t* codes) {
  for (std::size_t i = 0; i < 32; ++i) {
    codes[i] = signed_code(kIq4Values[nibble_at(nibbles, i % 16, i / 16)], 0, 0, 128);
  }
}

}  // namespace

void unpack_iq2_xxs(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::byte* entries = block + 2 + 8 * sub;
    const auto word = load_le<std::uint32_t>(entries + 4);
    out.scales[sub] = d * (0.5F + static_cast<float>(word >> 28)) * 0.25F;
    for (std::size_t eight = 0; eight < 4; ++eight) {
      unpack_eight(kIq2XxsGrid[byte_at(entries, eight)], even_signs((word >> (7 * eight)) & 127U),
                   out.codes + 32 * sub + 8 * eight);
    }
  }
}

void unpack_iq2_xs(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 16; ++sub) out.scales[sub] = half_scale(block + 66, d, sub);
  for (std::size_t group = 0; group < 32; ++group) {
    const std::uint32_t word = load_le<std::uint16_t>(block + 2 + 2 * group);
    unpack_eight(kIq2XsGrid[word & 511U], even_signs(word >> 9), out.codes + 8 * group);
  }
}

void unpack_iq2_s(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 16; ++sub) out.scales[sub] = half_scale(block + 74, d, sub);
  for (std::size_t group = 0; group < 32; ++group) {
    const std::uint32_t entry =
        byte_at(block + 2, group) | (bits_at(block + 66, group / 4, group % 4, 2) << 8);
    unpack_eight(kIq2SGrid[entry], byte_at(block + 34, group), out.codes + 8 * group);
  }
}

void unpack_iq3_xxs(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const auto word = load_le<std::uint32_t>(block + 66 + 4 * sub);
    out.scales[sub] = d * (0.5F + static_cast<float>(word >> 28));
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t signs = even_signs((word >> (7 * (i / 8))) & 127U);
      const std::uint32_t four = kIq3XxsGrid[byte_at(block + 2, 8 * sub + i / 4)];
      const float half = kIq3XxsValues[(four >> (3 * (i % 4))) & 7U] * 0.5F;
      out.codes[32 * sub + i] = signed_code(half, signs, i % 8, 32);
    }
  }
}

void unpack_iq3_s(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t code = nibble_at(block + 106, sub / 2, sub % 2);
    out.scales[sub] = d * static_cast<float>(1 + 2 * code);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t entry =
          byte_at(block + 2, 8 * sub + i / 4) | (bits_at(block + 66, sub, i / 4, 1) << 8);
      const std::uint32_t digit = (std::uint32_t{kIq3SGrid[entry]} >> (3 * (i % 4))) & 7U;
      out.codes[32 * sub + i] = signed_code(static_cast<float>(2 * digit + 1),
                                            byte_at(block + 74, 4 * sub + i / 8), i % 8, 16);
    }
  }
}

void unpack_iq1_s(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t high = load_le<std::uint16_t>(block + 34 + 2 * sub);
    out.scales[sub] = d * static_cast<float>(2 * ((high >> 12) & 7U) + 1) * 0.125F;
    for (std::size_t eight = 0; eight < 4; ++eight) {
      const std::uint32_t entry =
          byte_at(block + 2, 4 * sub + eight) | (((high >> (3 * eight)) & 7U) << 8);
      unpack_eight_ternary(kIq1Grid[entry], (high & 0x8000U) != 0,
                           out.codes + 32 * sub + 8 * eight);
    }
  }
}

void unpack_iq1_m(const std::byte* block, const CodeBlock& out) {
  const float d = spread_half_at(block + 48);
  for (std::size_t sub = 0; sub < 16; ++sub) {
    const std::uint32_t scales = load_le<std::uint16_t>(block + 48 + 2 * (sub / 4));
    const std::uint32_t code = (scales >> (3 * (sub % 4))) & 7U;
    out.scales[sub] = d * static_cast<float>(2 * code + 1) * 0.125F;
  }
  for (std::size_t group = 0; group < 32; ++group) {
    const std::uint32_t high = nibble_at(block + 32, group / 2, group % 2);
    unpack_eight_ternary(kIq1Grid[byte_at(block, group) | ((high & 7U) << 8)], (high & 8U) != 0,
                         out.codes + 8 * group);
  }
}

void unpack_iq4_nl(const std::byte* block, const CodeBlock& out) {
  out.scales[0] = half_at(block);
  unpack_iq4_nibbles(block + 2, out.codes);
}

void unpack_iq4_xs(const std::byte* block, const CodeBlock& out) {
  const float d = half_at(block);
  const std::uint32_t high = load_le<std::uint16_t>(block + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t code =
        nibble_at(block + 4, sub / 2, sub % 2) | (((high >> (2 * sub)) & 3U) << 4);
    out.scales[sub] = d * signed_float(code, 32);
    unpack_iq4_nibbles(block + 8 + 16 * sub, out.codes + 32 * sub);
  }
}

}  // namespace moepack::ggml
