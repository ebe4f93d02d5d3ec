// The I-quants: 256 weights in sub-blocks of 32. IQ1 to IQ3 look groups of eight (IQ3: four) up in
// a grid (formats/weights/ggml_grids.h), IQ2 and IQ3 with signs apart; IQ4 looks each weight up in
// a table of 16 values.
#include "formats/weights/ggml_block_decoders.h"
#include "formats/weights/ggml_grids.h"

namespace moepack::ggml {
namespace {

constexpr float kIq1Delta = 0.125F;

float with_sign(float magnitude, std::uint32_t signs, std::size_t j) {
  return ((signs >> j) & 1U) != 0 ? -magnitude : magnitude;
}

// Eight weights: one entry of a grid of two-bit digits.
void write_eight(std::uint32_t entry, float scale, std::uint32_t signs, float* out) {
  for (std::size_t j = 0; j < 8; ++j) {
    out[j] = with_sign(scale * kIq2Values[(entry >> (2 * j)) & 3U], signs, j);
  }
}

// Eight weights around `delta`, each -1, 0 or 1 apart.
void write_eight_ternary(std::uint32_t entry, float scale, float delta, float* out) {
  for (std::size_t j = 0; j < 8; ++j) {
    out[j] = scale * (signed_float((entry >> (2 * j)) & 3U, 1) + delta);
  }
}

}  // namespace

// d @0, then per sub-block four grid entries (u8) and a u32: four sign sets of seven bits, the
// scale in the top four
void decode_iq2_xxs(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::byte* entries = block + 2 + 8 * sub;
    const auto word = load_le<std::uint32_t>(entries + 4);
    const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.25F;
    for (std::size_t eight = 0; eight < 4; ++eight) {
      write_eight(kIq2XxsGrid[byte_at(entries, eight)], scale,
                  even_signs((word >> (7 * eight)) & 127U), out + 32 * sub + 8 * eight);
    }
  }
}

// d @0, u16[32] @2: grid entry of nine bits, signs of seven; scales[8] @66
void decode_iq2_xs(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t group = 0; group < 32; ++group) {
    const std::uint32_t word = load_le<std::uint16_t>(block + 2 + 2 * group);
    write_eight(kIq2XsGrid[word & 511U], half_scale(block + 66, d, group / 2),
                even_signs(word >> 9), out + 8 * group);
  }
}

// d @0, low bits of the grid entries[32] @2, signs[32] @34, their upper two bits[8] @66,
// scales[8] @74
void decode_iq2_s(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t group = 0; group < 32; ++group) {
    const std::uint32_t entry =
        byte_at(block + 2, group) | (bits_at(block + 66, group / 4, group % 4, 2) << 8);
    write_eight(kIq2SGrid[entry], half_scale(block + 74, d, group / 2), byte_at(block + 34, group),
                out + 8 * group);
  }
}

// d @0, grid entries[64] @2 (four weights each), eight u32 @66: four sign sets of seven bits, the
// scale in the top four
void decode_iq3_xxs(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const auto word = load_le<std::uint32_t>(block + 66 + 4 * sub);
    const float scale = d * (0.5F + static_cast<float>(word >> 28)) * 0.5F;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t signs = even_signs((word >> (7 * (i / 8))) & 127U);
      const std::uint32_t four = kIq3XxsGrid[byte_at(block + 2, 8 * sub + i / 4)];
      const float magnitude = scale * kIq3XxsValues[(four >> (3 * (i % 4))) & 7U];
      out[32 * sub + i] = with_sign(magnitude, signs, i % 8);
    }
  }
}

// d @0, low bits of the grid entries[64] @2, their ninth bits[8] @66, signs[32] @74, scales[4] @106
// of four bits
void decode_iq3_s(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t code = nibble_at(block + 106, sub / 2, sub % 2);
    const float scale = d * static_cast<float>(1 + 2 * code);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t entry =
          byte_at(block + 2, 8 * sub + i / 4) | (bits_at(block + 66, sub, i / 4, 1) << 8);
      const std::uint32_t digit = (std::uint32_t{kIq3SGrid[entry]} >> (3 * (i % 4))) & 7U;
      out[32 * sub + i] = with_sign(scale * static_cast<float>(2 * digit + 1),
                                    byte_at(block + 74, 4 * sub + i / 8), i % 8);
    }
  }
}

// d @0, low bits of the grid entries[32] @2, u16[8] @34: upper three bits of four entries, the
// scale in bits 12 to 14, the sign of delta on top
void decode_iq1_s(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t high = load_le<std::uint16_t>(block + 34 + 2 * sub);
    const float scale = d * static_cast<float>(2 * ((high >> 12) & 7U) + 1);
    const float delta = (high & 0x8000U) != 0 ? -kIq1Delta : kIq1Delta;
    for (std::size_t eight = 0; eight < 4; ++eight) {
      const std::uint32_t entry =
          byte_at(block + 2, 4 * sub + eight) | (((high >> (3 * eight)) & 7U) << 8);
      write_eight_ternary(kIq1Grid[entry], scale, delta, out + 32 * sub + 8 * eight);
    }
  }
}

// Low bits of the grid entries[32] @0, nibbles[16] @32: upper three bits and the sign of delta;
// u16[4] @48: four scales of three bits, and in the top four bits the quarters of d
void decode_iq1_m(const std::byte* block, float* out) {
  const float d = spread_half_at(block + 48);
  for (std::size_t group = 0; group < 32; ++group) {
    const std::size_t half = group / 2;  // a scale for every 16 weights
    const std::uint32_t scales = load_le<std::uint16_t>(block + 48 + 2 * (half / 4));
    const float scale = d * static_cast<float>(2 * ((scales >> (3 * (half % 4))) & 7U) + 1);
    const std::uint32_t high = nibble_at(block + 32, group / 2, group % 2);
    const float delta = (high & 8U) != 0 ? -kIq1Delta : kIq1Delta;
    write_eight_ternary(kIq1Grid[byte_at(block, group) | ((high & 7U) << 8)], scale, delta,
                        out + 8 * group);
  }
}

// d @0, nibbles[16] @2, as in Q4_0
void decode_iq4_nl(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) {
    out[i] = d * kIq4Values[nibble_at(block + 2, i % 16, i / 16)];
  }
}

// d @0, u16 upper two bits of the scales @2, their low bits[4] @4, nibbles[128] @8
void decode_iq4_xs(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::uint32_t high = load_le<std::uint16_t>(block + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::uint32_t code =
        nibble_at(block + 4, sub / 2, sub % 2) | (((high >> (2 * sub)) & 3U) << 4);
    const float scale = d * signed_float(code, 32);
    for (std::size_t i = 0; i < 32; ++i) {
      out[32 * sub + i] = scale * kIq4Values[nibble_at(block + 8, 16 * sub + i % 16, i / 16)];
    }
  }
}

}  // namespace moepack::ggml
