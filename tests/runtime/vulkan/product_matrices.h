// Matrices and inputs for tests of the products of prompts.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "runtime/vulkan/weight_kernels.h"
#include "tests/runtime/vulkan/device_bytes.h"
#include "tests/support/test_matrix.h"

namespace moepack::test {

// "matmul_q4".
inline std::string product_kernel_name(const std::string& operation, const WeightFormat& format) {
  return operation + "_" + std::string(qformat_info(format.id).name);
}

// Every format; of affine codes all groups and types of scales with four bits, one with others.
inline std::vector<WeightFormat> product_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : gpu_weight_formats()) {
    const bool is_usual = format.group_size == 64 && format.scale_type == DType::kBf16;
    if (!is_affine(format) || format.id == QFormatId::kQ4 || is_usual) formats.push_back(format);
  }
  return formats;
}

// Of the plain form, where nothing else is said.
constexpr ProductTile kUsualTile{.threads = 128, .outputs = 64, .tokens = 64};

// Specialization constants; `start` is a byte offset at which all matrices with these codes begin.
inline std::vector<std::uint32_t> product_constants(const WeightFormat& format, std::uint64_t cols,
                                                    std::uint64_t start = 0,
                                                    const ProductTile& tile = kUsualTile) {
  const std::uint64_t row_bytes = matrix_bytes(format, 1, cols).value().codes();
  const std::uint64_t lowest_bit = (row_bytes | start | 16) & (~(row_bytes | start | 16) + 1);
  return moepack::product_constants(
      {.format = format, .cols = cols, .alignment = static_cast<std::uint32_t>(lowest_bit)}, tile);
}

// Bytes of a component on the device; one word where the format lacks it.
inline std::vector<std::byte> component_bytes(const QMatrixView& w, Component component) {
  std::vector<std::byte> bytes = device_bytes(w, component);
  if (bytes.empty()) bytes.resize(4);
  return bytes;
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
