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
  block.scale = std::numeric_limits<float>::quiet_NaN();
  block.exponent = block.sum = block.half_sums[0] = block.half_sums[1] = block.scale;
}

// A code as digits at `i` of each block; returned as the number that they are.
std::int32_t store_digits(std::int32_t code, std::size_t digits, std::size_t i,
                          InputBlock* blocks) {
  if (digits == 1) {
    blocks->codes[i] = static_cast<std::int8_t>(code);
    return code;
  }
  const std::int32_t high = (code + 128) >> 8;
  const std::int32_t low = std::max(code - 256 * high, -127);
  blocks[0].codes[i] = static_cast<std::int8_t>(high);
  blocks[1].codes[i] = static_cast<std::int8_t>(low);
  return 256 * high + low;
}

std::int32_t load_digits(const InputBlock* blocks, std::size_t digits, std::size_t i) {
  return digits == 1 ? blocks->codes[i] : 256 * blocks[0].codes[i] + blocks[1].codes[i];
}

void quantize_block(const float* x, std::size_t digits, InputBlock* blocks) {
  float largest = 0.0F;
  bool is_finite = true;
  for (std::size_t i = 0; i < kInputGroup; ++i) {
    is_finite = is_finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  std::fill_n(blocks, digits, InputBlock{});
  InputBlock& block = *blocks;
  if (!is_finite) return set_nan(block);
  if (largest < kSmallestInput) {
    block.exponent = -std::numeric_limits<float>::infinity();
    return;
  }
  const InputScale scale = input_scale(largest, digits);
  std::array<std::int32_t, 2> sums{};
  for (std::size_t i = 0; i < kInputGroup; ++i) {
    const auto code = static_cast<std::int32_t>(std::nearbyintf(x[i] * scale.factor));
    sums[i / kHalf] += store_digits(code, digits, i, blocks);
  }
  block.scale = scale.scale;
  block.exponent = scale.exponent;
  block.minus_sum = -(sums[0] + sums[1]);
  block.sum = block.scale * static_cast<float>(sums[0] + sums[1]);
  for (std::size_t h = 0; h < 2; ++h) {
    block.minus_half_sums[h] = -sums[h];
    block.half_sums[h] = block.scale * static_cast<float>(sums[h]);
  }
}

void quantize(const float* x, std::size_t cols, std::size_t digits, InputBlock* out) {
  for (std::size_t c = 0; c < cols; c += kInputGroup) {
    quantize_block(x + c, digits, out + c / kInputGroup * digits);
  }
}

// A row of weights in codes.
struct CodeRow {
  CodeShape shape;
  std::span<std::uint8_t> codes;
  std::span<float> scales;
  std::span<float> biases;
};

// The part of a group of weights within one block of inputs.
float add_group(const CodeRow& row, std::size_t group, const InputBlock* blocks, std::size_t digits,
                std::size_t first, float sum) {
  const InputBlock& x = *blocks;
  const CodeShape& shape = row.shape;
  const bool is_half = shape.group == kHalf;
  const std::size_t half = first / kHalf;
  std::int32_t integer = 0;
  if (!shape.has_bias) {
    integer = (is_half ? x.minus_half_sums[half] : x.minus_sum) * (1 << shape.zero_bits);
  }
  for (std::size_t i = 0; i < shape.group; ++i) {
    integer +=
        std::int32_t{row.codes[group * shape.group + i]} * load_digits(blocks, digits, first + i);
  }
  sum = std::fma(static_cast<float>(integer), row.scales[group] * x.scale, sum);
  if (!shape.has_bias) return sum;
  return std::fma(row.biases[group], is_half ? x.half_sums[half] : x.sum, sum);
}

float dot_row(const CodeRow& row, const InputBlock* x, std::size_t digits) {
  float sum = 0.0F;
  for (std::size_t g = 0; g < row.scales.size(); ++g) {
    const std::size_t column = g * row.shape.group;
    sum = add_group(row, g, x + column / kInputGroup * digits, digits, column % kInputGroup, sum);
  }
  return sum;
}

bool supports(const WeightFormat& format) { return code_shape(format).has_value(); }

bool reads_panels(const WeightFormat& /*format*/) { return false; }

void multiply(const CodeProduct& product) {
  const CodeProduct& p = product;
  const CodeShape shape = *code_shape(p.w.format);
  const std::size_t groups = p.w.cols / shape.group;
  const CodeRow row{shape,
                    {reinterpret_cast<std::uint8_t*>(p.scratch.data() + 2 * groups), p.w.cols},
                    p.scratch.first(groups),
                    p.scratch.subspan(groups, groups)};
  for (std::uint64_t r = p.row_begin; r < p.row_end; ++r) {
    unpack_code_row(p.w, r, row.codes, row.scales, row.biases);
    for (std::size_t t = 0; t < p.tokens; ++t) {
      p.y[t * p.y_stride + r] = dot_row(row, p.x[t], p.digits);
    }
  }
}

}  // namespace

const CodeKernels& reference_code_kernels() {
  static constexpr CodeKernels kTable{supports, reads_panels, quantize, multiply};
  return kTable;
}

}  // namespace moepack
