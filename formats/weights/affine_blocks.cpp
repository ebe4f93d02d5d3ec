#include "formats/weights/affine_blocks.h"

#include <array>
#include <cmath>

#include "formats/base/bytes.h"
#include "formats/base/dtype.h"

namespace moepack {
namespace {

constexpr std::uint32_t kBlock = 32;  // values of Q4_1 and Q5_1
using Codes = std::array<std::uint8_t, kBlock>;

// Where a row lies.
struct AffineRow {
  const std::byte* codes;  // nullptr: not at hand
  const std::byte* scales;
  const std::byte* biases;
  std::uint32_t bits;
  std::uint32_t group_size;
  DType scale_type;

  float scale(std::uint64_t group) const {
    return load_plain_float(scale_type, scales + 2 * group);
  }
  float bias(std::uint64_t group) const { return load_plain_float(scale_type, biases + 2 * group); }
  // 32 codes of b bits are 4 b whole bytes.
  Codes block(std::uint64_t index) const {
    const std::byte* at = codes + index * (kBlock * bits / 8);
    Codes out;
    std::uint32_t window = 0;
    std::uint32_t have = 0;
    const std::uint32_t mask = (1U << bits) - 1;
    for (std::uint8_t& code : out) {
      if (have < bits) {
        window |= std::to_integer<std::uint32_t>(*at++) << have;
        have += 8;
      }
      code = static_cast<std::uint8_t>(window & mask);
      window >>= bits;
      have -= bits;
    }
    return out;
  }
};

AffineRow row_of(const QMatrixView& m, std::uint64_t row) {
  const std::uint64_t groups = m.cols / m.format.group_size;
  const std::uint32_t bits = qformat_info(m.format.id).bits;
  return {.codes = m.codes() == nullptr ? nullptr : m.codes() + row * (m.cols * bits / 8),
          .scales = m.scales() + row * groups * 2,
          .biases = m.biases() + row * groups * 2,
          .bits = bits,
          .group_size = m.format.group_size,
          .scale_type = m.format.scale_type};
}

bool is_half(float value) { return f16_to_f32(f32_to_f16(value)) == value; }

bool is_zero(const AffineRow& row, std::uint64_t group) {
  const std::uint32_t blocks = row.group_size / kBlock;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    for (std::uint8_t code : row.block(group * blocks + b)) {
      if (code != 0) return false;
    }
  }
  return true;
}

struct HalfGroup {
  std::uint16_t scale = 0;
  std::uint16_t bias = 0;
};

// nullopt: exact; `out` then holds what the blocks do.
std::optional<InexactGroup> halves_of(const AffineRow& row, std::uint64_t group, HalfGroup& out) {
  const float scale = row.scale(group);
  const float bias = row.bias(group);
  out = {.scale = f32_to_f16(scale), .bias = f32_to_f16(bias)};
  if (!is_half(bias)) return InexactGroup{.group = group, .is_scale = false, .value = bias};
  if (is_half(scale)) return std::nullopt;
  // MLX's rule gives equal weights, such as the zeros behind a vocabulary, a scale of 1e-7.
  if (row.codes != nullptr && std::isfinite(scale) && is_zero(row, group)) {
    out.scale = 0;
    return std::nullopt;
  }
  return InexactGroup{.group = group, .is_scale = true, .value = scale};
}

// The fields in the order of ggml's structs: d, m, the fifth bits of Q5_1, nibbles.
void store_block(const HalfGroup& half, const Codes& codes, QFormatId target, std::byte* out) {
  store_le(out, half.scale);
  store_le(out + 2, half.bias);
  out += 4;
  if (target == QFormatId::kQ51) {
    std::uint32_t high = 0;
    for (std::uint32_t i = 0; i < kBlock; ++i) high |= std::uint32_t{codes[i]} >> 4 << i;
    store_le(out, high);
    out += 4;
  }
  for (std::uint32_t i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<std::byte>((codes[i] & 15U) | (codes[i + kBlock / 2] & 15U) << 4);
  }
}

}  // namespace

std::optional<QFormatId> affine_block_format(const WeightFormat& format) {
  if (!is_affine(format)) return std::nullopt;
  const std::uint32_t bits = qformat_info(format.id).bits;
  if (bits <= 4) return QFormatId::kQ41;
  if (bits == 5) return QFormatId::kQ51;
  return std::nullopt;
}

std::optional<InexactGroup> find_inexact_group(const QMatrixView& matrix, std::uint64_t row) {
  const AffineRow affine = row_of(matrix, row);
  for (std::uint64_t g = 0; g < matrix.cols / affine.group_size; ++g) {
    HalfGroup half;
    if (const auto inexact = halves_of(affine, g, half)) return inexact;
  }
  return std::nullopt;
}

std::optional<InexactGroup> encode_affine_blocks(const QMatrixView& matrix, std::uint64_t row,
                                                 QFormatId target, std::span<std::byte> out) {
  const AffineRow affine = row_of(matrix, row);
  const std::uint32_t block_bytes = qformat_info(target).block_bytes;
  const std::uint32_t blocks = affine.group_size / kBlock;
  std::byte* at = out.data();
  for (std::uint64_t g = 0; g < matrix.cols / affine.group_size; ++g) {
    HalfGroup half;
    if (const auto inexact = halves_of(affine, g, half)) return inexact;
    for (std::uint32_t b = 0; b < blocks; ++b, at += block_bytes) {
      store_block(half, affine.block(g * blocks + b), target, at);
    }
  }
  return std::nullopt;
}

}  // namespace moepack
