#include "formats/weights/qformat.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"

namespace moepack {
namespace {

constexpr std::array<QFormatInfo, 37> kFormats{{
    {QFormatId::kF32, "f32", QKind::kPlain, 32, DType::kF32},
    {QFormatId::kF16, "f16", QKind::kPlain, 16, DType::kF16},
    {QFormatId::kBf16, "bf16", QKind::kPlain, 16, DType::kBf16},
    {QFormatId::kQ2, "q2", QKind::kAffine, 2, DType::kU32},
    {QFormatId::kQ3, "q3", QKind::kAffine, 3, DType::kU32},
    {QFormatId::kQ4, "q4", QKind::kAffine, 4, DType::kU32},
    {QFormatId::kQ5, "q5", QKind::kAffine, 5, DType::kU32},
    {QFormatId::kQ6, "q6", QKind::kAffine, 6, DType::kU32},
    {QFormatId::kQ8, "q8", QKind::kAffine, 8, DType::kU32},
    {QFormatId::kQ40, "q4_0", QKind::kBlock, 0, DType::kU8, 32, 18},
    {QFormatId::kQ41, "q4_1", QKind::kBlock, 0, DType::kU8, 32, 20},
    {QFormatId::kQ50, "q5_0", QKind::kBlock, 0, DType::kU8, 32, 22},
    {QFormatId::kQ51, "q5_1", QKind::kBlock, 0, DType::kU8, 32, 24},
    {QFormatId::kQ80, "q8_0", QKind::kBlock, 0, DType::kU8, 32, 34},
    {QFormatId::kQ2K, "q2_k", QKind::kBlock, 0, DType::kU8, 256, 84},
    {QFormatId::kQ3K, "q3_k", QKind::kBlock, 0, DType::kU8, 256, 110},
    {QFormatId::kQ4K, "q4_k", QKind::kBlock, 0, DType::kU8, 256, 144},
    {QFormatId::kQ5K, "q5_k", QKind::kBlock, 0, DType::kU8, 256, 176},
    {QFormatId::kQ6K, "q6_k", QKind::kBlock, 0, DType::kU8, 256, 210},
    {QFormatId::kIq2Xxs, "iq2_xxs", QKind::kBlock, 0, DType::kU8, 256, 66},
    {QFormatId::kIq2Xs, "iq2_xs", QKind::kBlock, 0, DType::kU8, 256, 74},
    {QFormatId::kIq3Xxs, "iq3_xxs", QKind::kBlock, 0, DType::kU8, 256, 98},
    {QFormatId::kIq1S, "iq1_s", QKind::kBlock, 0, DType::kU8, 256, 50},
    {QFormatId::kIq4Nl, "iq4_nl", QKind::kBlock, 0, DType::kU8, 32, 18},
    {QFormatId::kIq3S, "iq3_s", QKind::kBlock, 0, DType::kU8, 256, 110},
    {QFormatId::kIq2S, "iq2_s", QKind::kBlock, 0, DType::kU8, 256, 82},
    {QFormatId::kIq4Xs, "iq4_xs", QKind::kBlock, 0, DType::kU8, 256, 136},
    {QFormatId::kIq1M, "iq1_m", QKind::kBlock, 0, DType::kU8, 256, 56},
    {QFormatId::kTq10, "tq1_0", QKind::kBlock, 0, DType::kU8, 256, 54},
    {QFormatId::kTq20, "tq2_0", QKind::kBlock, 0, DType::kU8, 256, 66},
    {QFormatId::kMxfp4, "mxfp4", QKind::kBlock, 0, DType::kU8, 32, 17},
    {QFormatId::kNvfp4, "nvfp4", QKind::kBlock, 0, DType::kU8, 64, 36},
    {QFormatId::kQ10, "q1_0", QKind::kBlock, 0, DType::kU8, 128, 18},
    {QFormatId::kQ20, "q2_0", QKind::kBlock, 0, DType::kU8, 64, 18},
    {QFormatId::kF8E4M3, "f8_e4m3", QKind::kBlock, 0, DType::kU8, 128, 132},
    {QFormatId::kMxfp8, "mxfp8", QKind::kBlock, 0, DType::kU8, 32, 33},
    {QFormatId::kNvfp4Scaled, "nvfp4_scaled", QKind::kBlock, 0, DType::kU8, 128, 76},
}};

}  // namespace

std::span<const QFormatInfo> qformats() { return kFormats; }

const QFormatInfo& qformat_info(QFormatId id) {
  for (const QFormatInfo& info : kFormats) {
    if (info.id == id) return info;
  }
  assert(false && "a QFormatId without a row in kFormats");
  return kFormats[0];
}

std::optional<QFormatId> qformat_from_name(std::string_view name) {
  for (const QFormatInfo& info : kFormats) {
    if (info.name == name) return info.id;
  }
  return std::nullopt;
}

std::optional<QFormatId> plain_qformat(DType dtype) {
  for (const QFormatInfo& info : kFormats) {
    if (info.kind == QKind::kPlain && info.storage == dtype) return info.id;
  }
  return std::nullopt;
}

std::optional<QFormatId> affine_qformat(std::uint32_t bits) {
  for (const QFormatInfo& info : kFormats) {
    if (info.kind == QKind::kAffine && info.bits == bits) return info.id;
  }
  return std::nullopt;
}

std::string to_string(const WeightFormat& format) {
  std::string text(qformat_info(format.id).name);
  if (is_affine(format)) {
    text += " g" + std::to_string(format.group_size);
    if (format.scale_type == DType::kF16) text += " f16";
  }
  if (format.row_order != RowOrder::kRows) {
    text += ' ';
    text += row_order_name(format.row_order);
  }
  return text;
}

std::span<const Component> stored_components(const WeightFormat& format) {
  static constexpr std::array<Component, 3> kAffine{Component::kCodes, Component::kScales,
                                                    Component::kBiases};
  switch (qformat_info(format.id).kind) {
    case QKind::kAffine:
      return kAffine;
    case QKind::kPlain:
    case QKind::kBlock:
      return std::span(kAffine).first(1);
  }
  return {};
}

bool has_component(const WeightFormat& format, Component component) {
  const std::span<const Component> all = stored_components(format);
  return std::find(all.begin(), all.end(), component) != all.end();
}

DType component_dtype(const WeightFormat& format, Component component) {
  return component == Component::kCodes ? qformat_info(format.id).storage : format.scale_type;
}

namespace {

MatrixBytes bytes_of(std::uint64_t codes, std::uint64_t groups) {
  return {affine_components(codes, groups, groups)};
}

std::optional<MatrixBytes> block_matrix_bytes(const QFormatInfo& info, std::uint64_t rows,
                                              std::uint64_t cols) {
  if (cols % info.block_values != 0) return std::nullopt;
  const auto row_bytes = checked_mul(cols / info.block_values, info.block_bytes);
  if (!row_bytes.has_value()) return std::nullopt;
  const auto codes = checked_mul(*row_bytes, rows);
  if (!codes.has_value()) return std::nullopt;
  return bytes_of(*codes, 0);
}

}  // namespace

std::optional<MatrixBytes> matrix_bytes(const WeightFormat& format, std::uint64_t rows,
                                        std::uint64_t cols) {
  if (rows == 0 || cols == 0) return std::nullopt;
  const QFormatInfo& info = qformat_info(format.id);
  if (info.kind == QKind::kBlock) return block_matrix_bytes(info, rows, cols);
  const auto row_bits = checked_mul(cols, info.bits);
  if (!row_bits.has_value() || *row_bits % 8 != 0) return std::nullopt;
  const auto codes = checked_mul(*row_bits / 8, rows);
  if (!codes.has_value()) return std::nullopt;
  if (info.kind == QKind::kPlain) return bytes_of(*codes, 0);

  if (!is_valid_group_size(format.group_size)) return std::nullopt;
  if (cols % format.group_size != 0 || cols % MOE_AFFINE_ROW_MULTIPLE != 0) return std::nullopt;
  const std::uint64_t scale_bytes = dtype_bits(format.scale_type) / 8;
  const auto scales = checked_mul(cols / format.group_size * scale_bytes, rows);
  if (!scales.has_value()) return std::nullopt;
  const auto total = checked_add(*codes, *scales * 2);
  if (!total.has_value()) return std::nullopt;
  return bytes_of(*codes, *scales);
}

}  // namespace moepack
