// Matrices and inputs for tests of the products of prompts.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "formats/weights/ggml_grids.h"
#include "shaders/catalog.h"
#include "shaders/weight_tables.h"
#include "tests/support/test_matrix.h"

namespace moepack::test {

// "matmul_q4".
inline std::string product_kernel_name(const std::string& operation, const WeightFormat& format) {
  return operation + "_" + std::string(qformat_info(format.id).name);
}

// Formats that have a matmul kernel, with all their parameters.
inline std::vector<WeightFormat> product_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : all_weight_formats()) {
    if (!shader_code(product_kernel_name("matmul", format)).empty()) formats.push_back(format);
  }
  return formats;
}

// Specialization constants; `start` is a byte offset at which all matrices with these codes begin.
inline std::vector<std::uint32_t> product_constants(const WeightFormat& format, std::uint64_t cols,
                                                    std::uint64_t start = 0) {
  const std::uint64_t row_bytes = matrix_bytes(format, 1, cols).value().codes();
  const std::uint64_t lowest_bit = (row_bytes | start | 16) & (~(row_bytes | start | 16) + 1);
  return {128, static_cast<std::uint32_t>(cols), static_cast<std::uint32_t>(lowest_bit),
          format.group_size, format.scale_type == DType::kF16 ? 1U : 0U};
}

// What formats with grids read (shaders/weight_tables.h).
inline std::vector<std::uint16_t> grid_tables() {
  std::vector<std::uint16_t> tables(MOE_GRID_ENTRIES);
  const auto put = [&](const auto& grid, std::size_t at) {
    std::copy(grid.begin(), grid.end(), tables.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(kIq2XxsGrid, MOE_GRID_IQ2_XXS);
  put(kIq2XsGrid, MOE_GRID_IQ2_XS);
  put(kIq2SGrid, MOE_GRID_IQ2_S);
  put(kIq3XxsGrid, MOE_GRID_IQ3_XXS);
  put(kIq3SGrid, MOE_GRID_IQ3_S);
  put(kIq1Grid, MOE_GRID_IQ1);
  return tables;
}

// Bytes of a component; one word where the format lacks it.
inline std::vector<std::byte> component_bytes(const QMatrixView& w, Component component) {
  const std::uint64_t size = matrix_bytes(w.format, w.rows, w.cols).value()[component];
  if (size == 0) return std::vector<std::byte>(4);
  return {w.data[component], w.data[component] + size};
}

// [rows, stride] with values about 1; NaN behind `cols`.
inline std::vector<float> random_inputs(std::size_t rows, std::size_t cols, std::size_t stride,
                                        std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * stride, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) x[r * stride + c] = normal(random);
  }
  return x;
}

// Error of a float32 sum of `count` products whose magnitudes sum to `magnitude`, and of decoding.
inline double sum_bound(std::uint64_t count, double magnitude) {
  return (static_cast<double>(count) / 4 + 16) * 0x1p-24 * magnitude;
}

}  // namespace moepack::test
