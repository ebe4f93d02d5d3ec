#include "formats/qcodec.h"

#include <cassert>

#include "formats/bytes.h"

namespace moepack {

std::uint32_t unpack_code(const std::byte* row, std::uint64_t index, std::uint32_t bits) {
  const std::uint64_t bit = index * bits;
  const std::byte* at = row + bit / 8;
  const auto shift = static_cast<std::uint32_t>(bit % 8);
  std::uint32_t window = std::to_integer<std::uint32_t>(at[0]);
  if (shift + bits > 8) window |= std::to_integer<std::uint32_t>(at[1]) << 8;
  return (window >> shift) & ((1U << bits) - 1U);
}

void pack_code(std::byte* row, std::uint64_t index, std::uint32_t bits, std::uint32_t code) {
  assert(code < (1U << bits));
  const std::uint64_t bit = index * bits;
  std::byte* at = row + bit / 8;
  const auto shift = static_cast<std::uint32_t>(bit % 8);
  const std::uint32_t window = code << shift;
  at[0] |= static_cast<std::byte>(window & 0xffU);
  if (shift + bits > 8) at[1] |= static_cast<std::byte>(window >> 8);
}

namespace {

void decode_plain(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  const QFormatInfo& info = qformat_info(matrix.format.id);
  const std::uint64_t element_bytes = info.bits / 8;
  const std::byte* at = matrix.weight + row * matrix.cols * element_bytes;
  for (std::uint64_t i = 0; i < matrix.cols; ++i) {
    out[i] = load_plain_float(info.storage, at + i * element_bytes);
  }
}

void decode_affine(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  const WeightFormat& format = matrix.format;
  const std::uint32_t bits = qformat_info(format.id).bits;
  const std::uint64_t groups = matrix.cols / format.group_size;
  const std::uint64_t scale_bytes = dtype_bits(format.scale_type) / 8;
  const std::byte* codes = matrix.weight + row * (matrix.cols * bits / 8);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const std::uint64_t at = (row * groups + g) * scale_bytes;
    const float scale = load_plain_float(format.scale_type, matrix.scales + at);
    const float bias = load_plain_float(format.scale_type, matrix.biases + at);
    for (std::uint64_t i = g * format.group_size; i < (g + 1) * format.group_size; ++i) {
      const float product = static_cast<float>(unpack_code(codes, i, bits)) * scale;
      out[i] = product + bias;
    }
  }
}

}  // namespace

void decode_row(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  assert(row < matrix.rows && out.size() >= matrix.cols);
  if (is_affine(matrix.format)) {
    decode_affine(matrix, row, out);
  } else {
    decode_plain(matrix, row, out);
  }
}

}  // namespace moepack
