#include "runtime/vulkan/kernel_set.h"

namespace moepack {

const VulkanKernel& KernelSet::get(std::string_view shader, std::vector<std::uint32_t> constants) {
  const auto [place, is_new] = kernels_.try_emplace({std::string(shader), std::move(constants)});
  if (!is_new) return place->second;
  Result<VulkanKernel> made =
      device_->make_kernel({.shader = shader, .constants = place->first.second});
  if (made.is_ok()) {
    place->second = std::move(made).value();
  } else if (status_.is_ok()) {
    status_ = made.status();
  }
  return place->second;
}

std::string shader_name(std::string_view operation, const WeightFormat& format) {
  return std::string(operation) + "_" + std::string(qformat_info(format.id).name);
}

}  // namespace moepack
