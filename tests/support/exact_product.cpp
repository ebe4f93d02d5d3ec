// A file of its own, compiled as libraries are: twins spend most of their time here, and test
// programs are compiled without optimisation.
#include "tests/support/exact_product.h"

#include <algorithm>
#include <cmath>

#include "formats/weights/qcodec.h"

namespace moepack::test {
namespace {

// One weight as the format's definition says, in double, and the size of what it is summed from. It
// is not for blocks, which decode_row defines (ggml_blocks_test.cpp compares that with ggml).
struct ExactWeight {
  double value;
  double magnitude;
};
ExactWeight exact_weight(const QMatrixView& w, std::uint64_t row, std::uint64_t col) {
  const QFormatInfo& info = qformat_info(w.format.id);
  if (!is_affine(w.format)) {
    const std::byte* at = w.codes() + (row * w.cols + col) * info.bits / 8;
    const auto value = static_cast<double>(load_plain_float(info.storage, at));
    return {value, std::fabs(value)};
  }
  const std::uint32_t code = unpack_code(w.codes() + row * w.cols * info.bits / 8, col, info.bits);
  const std::uint64_t at = 2 * (row * (w.cols / w.format.group_size) + col / w.format.group_size);
  const auto scale = static_cast<double>(load_plain_float(w.format.scale_type, w.scales() + at));
  const auto bias = static_cast<double>(load_plain_float(w.format.scale_type, w.biases() + at));
  return {code * scale + bias, std::fabs(code * scale) + std::fabs(bias)};
}

// The bytes of a block that hold nothing but codes, counted from the type's smallest value. With
// zeros there, a block decodes to what its type adds to scale * code. Empty where nothing is added.
struct CodeBytes {
  std::size_t begin = 0;
  std::size_t end = 0;
};
CodeBytes offset_codes(QFormatId id) {
  switch (id) {
    case QFormatId::kQ40:
    case QFormatId::kIq4Nl:
      return {2, 18};
    case QFormatId::kQ41:
      return {4, 20};
    case QFormatId::kQ50:
      return {2, 22};
    case QFormatId::kQ51:
      return {4, 24};
    case QFormatId::kQ2K:
      return {16, 80};
    case QFormatId::kQ3K:
      return {0, 96};
    case QFormatId::kQ4K:
      return {16, 144};
    case QFormatId::kQ5K:
      return {16, 176};
    case QFormatId::kQ6K:
      return {0, 192};
    case QFormatId::kIq4Xs:
      return {8, 136};
    default:
      return {};
  }
}

// A row of blocks: weights, and |scale * code| + |what is added|.
void exact_block_row(const QMatrixView& w, std::uint64_t row, std::vector<ExactWeight>& out) {
  const QFormatInfo& info = qformat_info(w.format.id);
  const CodeBytes codes = offset_codes(w.format.id);
  const std::uint64_t row_bytes = w.cols / info.block_values * info.block_bytes;
  std::vector<float> decoded(w.cols);
  decode_row(w, row, decoded);
  const std::byte* from = w.codes() + row * row_bytes;
  std::vector<std::byte> cleared(from, from + row_bytes);
  for (std::uint64_t at = 0; at < row_bytes; at += info.block_bytes) {
    for (std::size_t i = codes.begin; i < codes.end; ++i) cleared[at + i] = std::byte{0};
  }
  std::vector<float> added(w.cols);
  decode_row({.format = w.format,
              .rows = 1,
              .cols = w.cols,
              .data = affine_components<const std::byte*>(cleared.data())},
             0, added);
  for (std::uint64_t c = 0; c < w.cols; ++c) {
    const auto value = static_cast<double>(decoded[c]);
    const double bias = codes.end == 0 ? 0.0 : static_cast<double>(added[c]);
    out[c] = {value, std::fabs(value - bias) + std::fabs(bias)};
  }
}

// The largest size in each input's block, for inputs [0, cols).
std::vector<double> block_peaks(const float* x, std::uint64_t cols, std::uint64_t block) {
  std::vector<double> peaks(cols);
  for (std::uint64_t c = 0; c < cols; ++c) {
    double& first = peaks[c / block * block];
    first = std::max(first, std::fabs(static_cast<double>(x[c])));
  }
  for (std::uint64_t c = 0; c < cols; ++c) peaks[c] = peaks[c / block * block];
  return peaks;
}
double largest_scale(const QMatrixView& w) {
  double largest = 0;
  const std::uint64_t count = is_affine(w.format) ? w.rows * (w.cols / w.format.group_size) : 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float scale = load_plain_float(w.format.scale_type, w.scales() + i * 2);
    largest = std::max(largest, std::fabs(static_cast<double>(scale)));
  }
  return largest;
}

}  // namespace

ExactProduct exact_product(const QMatrixView& w, const float* x, std::size_t x_stride,
                           std::size_t tokens) {
  ExactProduct product;
  product.value.resize(tokens * w.rows);
  product.magnitude.resize(tokens * w.rows);
  product.peak.resize(tokens * w.rows);
  std::vector<std::vector<double>> peaks;
  for (std::size_t t = 0; t < tokens; ++t) {
    peaks.push_back(block_peaks(x + t * x_stride, w.cols, unit_inputs(w.format.id)));
  }
  product.largest_scale = largest_scale(w);
  std::vector<ExactWeight> row(w.cols);
  for (std::uint64_t r = 0; r < w.rows; ++r) {
    if (is_block(w.format)) {
      exact_block_row(w, r, row);
      // Inputs are scaled by up to 2^-28 to undo where a code of four bits stands.
      for (const ExactWeight& weight : row) {
        product.largest_scale = std::max(product.largest_scale, 16 * weight.magnitude);
      }
    } else {
      for (std::uint64_t c = 0; c < w.cols; ++c) row[c] = exact_weight(w, r, c);
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      double value = 0;
      double magnitude = 0;
      double peak = 0;
      for (std::uint64_t c = 0; c < w.cols; ++c) {
        const auto input = static_cast<double>(x[t * x_stride + c]);
        value += row[c].value * input;
        magnitude += row[c].magnitude * std::fabs(input);
        peak += row[c].magnitude * peaks[t][c];
      }
      product.value[t * w.rows + r] = value;
      product.peak[t * w.rows + r] = peak;
      product.magnitude[t * w.rows + r] = magnitude;
    }
  }
  return product;
}

}  // namespace moepack::test
