// Kernels that read weights, by format and shape: their names and specialization constants, the same
// for all of them (shaders/weights.glsl).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/config/layer_spec.h"
#include "formats/weights/expert_layout.h"
#include "runtime/vulkan/device_weights.h"
#include "runtime/vulkan/kernel_set.h"

namespace moepack {

// What the constants 0 to 4 say: threads, columns, alignment of a row's codes, group, type of scales.
struct WeightConstants {
  std::uint32_t threads = 0;
  WeightFormat format;
  std::uint64_t cols = 0;
  std::uint32_t code_alignment = 1;  // of every row, in bytes: a power of two up to 16
};

// `more`: the kernel's own constants from 5 on.
const VulkanKernel& weight_kernel(KernelSet& kernels, std::string_view operation,
                                  const WeightConstants& constants,
                                  const std::vector<std::uint32_t>& more = {});

// The largest power of two up to 16 that the codes of every row of the matrix start at a multiple
// of, when its first row starts at a multiple of `base`.
std::uint32_t row_alignment(const WeightFormat& format, std::uint64_t cols, std::uint64_t base);

inline WeightConstants constants_of(const DeviceMatrix& matrix, std::uint32_t threads) {
  return {.threads = threads,
          .format = matrix.format,
          .cols = matrix.cols,
          .code_alignment = row_alignment(matrix.format, matrix.cols, DeviceArena::kAlignment)};
}
inline WeightConstants constants_of(const ProjectionLayout& projection, std::uint32_t threads) {
  return {.threads = threads,
          .format = projection.format,
          .cols = projection.cols,
          .code_alignment = row_alignment(projection.format, projection.cols,
                                          projection.offset_of(Component::kCodes) |
                                              DeviceArena::kAlignment)};
}

// How the lanes of a work group share the rows of a matrix (shaders/row_dots.glsl).
struct DotShape {
  std::uint32_t lanes = 1;  // of a row
  std::uint32_t rows = 1;   // that these lanes take together
  std::uint32_t steps = 1;  // chunks in flight
  bool is_input_shared = false;
};
// For rows of `cols` with `input_rows` rows of inputs in shared memory, where they fit.
DotShape dot_shape(const VulkanDeviceInfo& device, const WeightFormat& format, std::uint64_t cols,
                   std::uint32_t input_rows, std::uint32_t threads);

// Whether the kernels know the format.
bool has_device_kernels(const WeightFormat& format);

}  // namespace moepack
