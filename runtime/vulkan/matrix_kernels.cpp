#include "runtime/vulkan/matrix_kernels.h"

#include <algorithm>
#include <bit>

#include "shaders/catalog.h"

namespace moepack {

const VulkanKernel& weight_kernel(KernelSet& kernels, std::string_view operation,
                                  const WeightConstants& constants,
                                  const std::vector<std::uint32_t>& more) {
  std::vector<std::uint32_t> values{constants.threads,
                                    static_cast<std::uint32_t>(constants.cols),
                                    constants.code_alignment,
                                    std::max<std::uint32_t>(constants.format.group_size, 1),
                                    constants.format.scale_type == DType::kF16 ? 1U : 0U};
  values.insert(values.end(), more.begin(), more.end());
  return kernels.get(shader_name(operation, constants.format), std::move(values));
}

std::uint32_t row_alignment(const WeightFormat& format, std::uint64_t cols, std::uint64_t base) {
  const std::optional<MatrixBytes> row = matrix_bytes(format, 1, cols);
  const std::uint64_t bytes = row.has_value() ? (*row)[Component::kCodes] : 1;
  return static_cast<std::uint32_t>(std::uint64_t{1} << std::countr_zero(bytes | base | 16));
}

bool has_device_kernels(const WeightFormat& format) {
  return !shader_code(shader_name("matvec", format)).empty();
}

}  // namespace moepack
