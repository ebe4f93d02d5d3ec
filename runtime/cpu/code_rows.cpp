#include "runtime/cpu/code_rows.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "formats/base/dtype.h"
#include "formats/weights/qcodec.h"
#include "formats/weights/row_order.h"
#include "runtime/cpu/code_blocks.h"

namespace moepack {
namespace {

struct BlockRow {
  QFormatId id;
  CodeShape shape;
  void (*unpack)(const std::byte* block, const CodeBlock& out);
};

constexpr CodeShape with_zero(std::uint32_t group, std::uint32_t zero_bits, std::uint32_t largest) {
  return {.group = group, .zero_bits = zero_bits, .has_bias = false, .largest_code = largest};
}
constexpr CodeShape with_bias(std::uint32_t group, std::uint32_t largest) {
  return {.group = group, .zero_bits = 0, .has_bias = true, .largest_code = largest};
}

constexpr std::array<BlockRow, 25> kBlocks{{
    {QFormatId::kQ40, with_zero(32, 3, 15), ggml::unpack_q4_0},
    {QFormatId::kQ41, with_bias(32, 15), ggml::unpack_q4_1},
    {QFormatId::kQ50, with_zero(32, 4, 31), ggml::unpack_q5_0},
    {QFormatId::kQ51, with_bias(32, 31), ggml::unpack_q5_1},
    {QFormatId::kQ80, with_zero(32, 7, 255), ggml::unpack_q8_0},
    {QFormatId::kQ2K, with_bias(16, 3), ggml::unpack_q2_k},
    {QFormatId::kQ3K, with_zero(16, 2, 7), ggml::unpack_q3_k},
    {QFormatId::kQ4K, with_bias(32, 15), ggml::unpack_q4_k},
    {QFormatId::kQ5K, with_bias(32, 31), ggml::unpack_q5_k},
    {QFormatId::kQ6K, with_zero(16, 5, 63), ggml::unpack_q6_k},
    {QFormatId::kIq2Xxs, with_zero(32, 6, 107), ggml::unpack_iq2_xxs},
    {QFormatId::kIq2Xs, with_zero(16, 6, 107), ggml::unpack_iq2_xs},
    {QFormatId::kIq2S, with_zero(16, 6, 107), ggml::unpack_iq2_s},
    {QFormatId::kIq3Xxs, with_zero(32, 5, 63), ggml::unpack_iq3_xxs},
    {QFormatId::kIq3S, with_zero(32, 4, 31), ggml::unpack_iq3_s},
    {QFormatId::kIq1S, with_zero(32, 4, 25), ggml::unpack_iq1_s},
    {QFormatId::kIq1M, with_zero(16, 4, 25), ggml::unpack_iq1_m},
    {QFormatId::kIq4Nl, with_zero(32, 7, 241), ggml::unpack_iq4_nl},
    {QFormatId::kIq4Xs, with_zero(32, 7, 241), ggml::unpack_iq4_xs},
    {QFormatId::kTq10, with_zero(32, 1, 3), ggml::unpack_tq1_0},
    {QFormatId::kTq20, with_zero(32, 1, 4), ggml::unpack_tq2_0},
    {QFormatId::kMxfp4, with_zero(32, 4, 28), ggml::unpack_mxfp4},
    {QFormatId::kNvfp4, with_zero(16, 4, 28), ggml::unpack_nvfp4},
    {QFormatId::kQ10, with_zero(32, 1, 3), ggml::unpack_q1_0},
    {QFormatId::kQ20, with_zero(32, 1, 4), ggml::unpack_q2_0},
}};

const BlockRow* block_row(QFormatId id) {
  for (const BlockRow& row : kBlocks) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

void unpack_affine(const QMatrixView& matrix, std::uint64_t row, std::uint8_t* codes, float* scales,
                   float* biases) {
  const WeightFormat& format = matrix.format;
  const std::uint32_t bits = qformat_info(format.id).bits;
  const std::byte* packed = matrix.codes() + row * (matrix.cols * bits / 8);
  for (std::uint64_t c = 0; c < matrix.cols; ++c) {
    codes[c] = static_cast<std::uint8_t>(unpack_code(packed, c, bits));
  }
  const std::uint64_t groups = matrix.cols / format.group_size;
  for (std::uint64_t g = 0; g < matrix.cols / 32; ++g) {
    const std::uint64_t at = 2 * (row * groups + g * 32 / format.group_size);
    scales[g] = load_plain_float(format.scale_type, matrix.scales() + at);
    biases[g] = load_plain_float(format.scale_type, matrix.biases() + at);
  }
}

// A row of a panel, piece by piece.
void unpack_panel_row(const QMatrixView& matrix, std::uint64_t row, std::span<std::uint8_t> codes,
                      std::span<float> scales, std::span<float> biases) {
  const std::uint64_t group = code_shape(matrix.format)->group;
  for (std::uint64_t c = 0; c < matrix.cols; c += PanelRowPiece::kColumns) {
    const PanelRowPiece piece(matrix, row, c, std::min(PanelRowPiece::kColumns, matrix.cols - c));
    unpack_code_row(piece.view(), 0, codes.subspan(c), scales.subspan(c / group),
                    biases.subspan(c / group));
  }
}

}  // namespace

std::optional<CodeShape> code_shape(const WeightFormat& format) {
  const QFormatInfo& info = qformat_info(format.id);
  if (info.kind == QKind::kAffine && can_decode(format)) {
    return with_bias(32, (1U << info.bits) - 1U);
  }
  const BlockRow* row = block_row(format.id);
  return row == nullptr ? std::nullopt : std::optional(row->shape);
}

void unpack_code_row(const QMatrixView& matrix, std::uint64_t row, std::span<std::uint8_t> codes,
                     std::span<float> scales, std::span<float> biases) {
  assert(row < matrix.rows && codes.size() >= matrix.cols && code_shape(matrix.format));
  if (is_in_panel(matrix, row)) return unpack_panel_row(matrix, row, codes, scales, biases);
  if (is_affine(matrix.format)) {
    return unpack_affine(matrix, row, codes.data(), scales.data(), biases.data());
  }
  const QFormatInfo& info = qformat_info(matrix.format.id);
  const BlockRow& format = *block_row(info.id);
  const std::uint64_t blocks = matrix.cols / info.block_values;
  const std::uint64_t groups = info.block_values / format.shape.group;
  const std::byte* at = matrix.codes() + row * blocks * info.block_bytes;
  for (std::uint64_t b = 0; b < blocks; ++b, at += info.block_bytes) {
    format.unpack(at, {.codes = codes.data() + b * info.block_values,
                       .scales = scales.data() + b * groups,
                       .biases = format.shape.has_bias ? biases.data() + b * groups : nullptr});
  }
}

}  // namespace moepack
