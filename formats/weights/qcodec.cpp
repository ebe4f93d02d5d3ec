#include "formats/weights/qcodec.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "formats/base/bytes.h"
#include "formats/weights/ggml_blocks.h"
#include "formats/weights/row_order.h"

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

template <typename Element, float (*Widen)(Element)>
void decode_plain(const std::byte* row, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = Widen(load_le<Element>(row + i * sizeof(Element)));
  }
}

float widen_f32(float value) { return value; }

using PlainDecoder = void (*)(const std::byte*, std::span<float>);

// nullptr: not a plain format.
PlainDecoder plain_decoder(QFormatId id) {
  if (id == QFormatId::kF32) return decode_plain<float, widen_f32>;
  if (id == QFormatId::kF16) return decode_plain<std::uint16_t, f16_to_f32>;
  if (id == QFormatId::kBf16) return decode_plain<std::uint16_t, bf16_to_f32>;
  return nullptr;
}

void decode_plain(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  const std::uint64_t row_bytes = matrix.cols * qformat_info(matrix.format.id).bits / 8;
  plain_decoder(matrix.format.id)(matrix.codes() + row * row_bytes, out);
}

// Groups are multiples of eight codes, and eight codes fill exactly `Bits` bytes: one window of at
// most 64 bits holds them, read without touching a byte beyond.
template <std::uint32_t Bits>
void decode_group(const std::byte* codes, float scale, float bias, std::span<float> out) {
  constexpr std::uint64_t kMask = (1U << Bits) - 1U;
  for (std::size_t i = 0; i < out.size(); i += 8, codes += Bits) {
    std::uint64_t window = 0;
    std::memcpy(&window, codes, Bits);
    for (std::uint32_t j = 0; j < 8; ++j) {
      const auto code = static_cast<std::int32_t>((window >> (Bits * j)) & kMask);
      const float product = static_cast<float>(code) * scale;
      out[i + j] = product + bias;
    }
  }
}

using GroupDecoder = void (*)(const std::byte*, float, float, std::span<float>);

// nullptr: no such width.
GroupDecoder group_decoder(std::uint32_t bits) {
  switch (bits) {
    case 2:
      return decode_group<2>;
    case 3:
      return decode_group<3>;
    case 4:
      return decode_group<4>;
    case 5:
      return decode_group<5>;
    case 6:
      return decode_group<6>;
    case 8:
      return decode_group<8>;
  }
  return nullptr;
}

void decode_affine(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  const WeightFormat& format = matrix.format;
  const std::uint32_t bits = qformat_info(format.id).bits;
  const GroupDecoder decode = group_decoder(bits);
  const std::uint64_t groups = matrix.cols / format.group_size;
  const std::uint64_t scale_bytes = dtype_bits(format.scale_type) / 8;
  const std::byte* codes = matrix.codes() + row * (matrix.cols * bits / 8);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const std::uint64_t at = (row * groups + g) * scale_bytes;
    const float scale = load_plain_float(format.scale_type, matrix.scales() + at);
    const float bias = load_plain_float(format.scale_type, matrix.biases() + at);
    decode(codes + g * format.group_size * bits / 8, scale, bias,
           out.subspan(g * format.group_size, format.group_size));
  }
}

// A row of a panel, piece by piece.
void decode_panel_row(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  for (std::uint64_t c = 0; c < matrix.cols; c += PanelRowPiece::kColumns) {
    const std::uint64_t cols = std::min(PanelRowPiece::kColumns, matrix.cols - c);
    const PanelRowPiece piece(matrix, row, c, cols);
    decode_row(piece.view(), 0, out.subspan(c, cols));
  }
}

}  // namespace

bool can_decode(const WeightFormat& format) {
  const QFormatInfo& info = qformat_info(format.id);
  switch (info.kind) {
    case QKind::kPlain:
      return plain_decoder(format.id) != nullptr;
    case QKind::kAffine:
      return group_decoder(info.bits) != nullptr && is_valid_group_size(format.group_size) &&
             (format.scale_type == DType::kBf16 || format.scale_type == DType::kF16);
    case QKind::kBlock:
      return block_decoder(format.id) != nullptr;
  }
  return false;
}

void decode_row(const QMatrixView& matrix, std::uint64_t row, std::span<float> out) {
  assert(row < matrix.rows && out.size() >= matrix.cols && can_decode(matrix.format));
  out = out.first(matrix.cols);
  if (is_in_panel(matrix, row)) return decode_panel_row(matrix, row, out);
  switch (qformat_info(matrix.format.id).kind) {
    case QKind::kAffine:
      return decode_affine(matrix, row, out);
    case QKind::kBlock:
      return decode_block_columns(matrix, row, 0, out);
    case QKind::kPlain:
      return decode_plain(matrix, row, out);
  }
}

}  // namespace moepack
