#include "runtime/cpu/codes_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "runtime/cpu/code_rows.h"

namespace moepack {
namespace {

constexpr std::size_t kHalf = kInputGroup / 2;

void set_nan(InputBlock& block) {
  block = {};
  block.scale = std::numeric_limits<float>::quiet_NaN();
  block.sum = block.half_sums[0] = block.half_sums[1] = block.scale;
}

void quantize_block(const float* x, InputBlock& block) {
  float largest = 0.0F;
  bool is_finite = true;
  for (std::size_t i = 0; i < kInputGroup; ++i) {
    is_finite = is_finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (!is_finite) return set_nan(block);
  block = {};
  if (largest < kSmallestInput) return;
  const float factor = 127.0F / largest;
  std::array<std::int32_t, 2> sums{};
  for (std::size_t i = 0; i < kInputGroup; ++i) {
    block.codes[i] = static_cast<std::int8_t>(std::nearbyintf(x[i] * factor));
    sums[i / kHalf] += block.codes[i];
  }
  block.scale = largest / 127.0F;
  block.minus_sum = -(sums[0] + sums[1]);
  block.sum = block.scale * static_cast<float>(sums[0] + sums[1]);
  for (std::size_t h = 0; h < 2; ++h) {
    block.minus_half_sums[h] = -sums[h];
    block.half_sums[h] = block.scale * static_cast<float>(sums[h]);
  }
}

void quantize(const float* x, std::size_t cols, InputBlock* out) {
  for (std::size_t c = 0; c < cols; c += kInputGroup) quantize_block(x + c, out[c / kInputGroup]);
}

// A row of weights in codes.
struct CodeRow {
  CodeShape shape;
  std::span<std::uint8_t> codes;
  std::span<float> scales;
  std::span<float> biases;
};

// The part of a group of weights within one block of inputs.
float add_group(const CodeRow& row, std::size_t group, const InputBlock& x, std::size_t first,
                float sum) {
  const CodeShape& shape = row.shape;
  const bool is_half = shape.group == kHalf;
  const std::size_t half = first / kHalf;
  std::int32_t integer = 0;
  if (!shape.has_bias) {
    integer = (is_half ? x.minus_half_sums[half] : x.minus_sum) * (1 << shape.zero_bits);
  }
  for (std::size_t i = 0; i < shape.group; ++i) {
    integer += std::int32_t{row.codes[group * shape.group + i]} * x.codes[first + i];
  }
  sum = std::fma(static_cast<float>(integer), row.scales[group] * x.scale, sum);
  if (!shape.has_bias) return sum;
  return std::fma(row.biases[group], is_half ? x.half_sums[half] : x.sum, sum);
}

float dot_row(const CodeRow& row, const InputBlock* x) {
  float sum = 0.0F;
  for (std::size_t g = 0; g < row.scales.size(); ++g) {
    const std::size_t column = g * row.shape.group;
    sum = add_group(row, g, x[column / kInputGroup], column % kInputGroup, sum);
  }
  return sum;
}

bool supports(const WeightFormat& format) { return code_shape(format).has_value(); }

bool reads_panels(const WeightFormat& /*format*/) { return false; }

void multiply(const QMatrixView& w, const InputBlock* const* x, std::size_t tokens,
              std::uint64_t row_begin, std::uint64_t row_end, float* y, std::size_t y_stride,
              std::span<float> scratch) {
  const CodeShape shape = *code_shape(w.format);
  const std::size_t groups = w.cols / shape.group;
  const CodeRow row{shape,
                    {reinterpret_cast<std::uint8_t*>(scratch.data() + 2 * groups), w.cols},
                    scratch.first(groups),
                    scratch.subspan(groups, groups)};
  for (std::uint64_t r = row_begin; r < row_end; ++r) {
    unpack_code_row(w, r, row.codes, row.scales, row.biases);
    for (std::size_t t = 0; t < tokens; ++t) y[t * y_stride + r] = dot_row(row, x[t]);
  }
}

}  // namespace

const CodeKernels& reference_code_kernels() {
  static constexpr CodeKernels kTable{supports, reads_panels, quantize, multiply};
  return kTable;
}

}  // namespace moepack
