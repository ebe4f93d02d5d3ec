// The kernels of a model, each made once: by shader and specialization constants.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/status.h"
#include "formats/weights/qformat.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

class KernelSet {
 public:
  // The device outlives it.
  explicit KernelSet(VulkanDevice& device) : device_(&device) {}

  // The kernel of `shader` with these constants. After a failure a kernel that must not be run; the
  // first failure is status(), so that recording reads as a list.
  const VulkanKernel& get(std::string_view shader, std::vector<std::uint32_t> constants);
  const Status& status() const { return status_; }

 private:
  using Key = std::pair<std::string, std::vector<std::uint32_t>>;
  VulkanDevice* device_;
  std::map<Key, VulkanKernel> kernels_;
  Status status_;
};

// "matvec" of a format: "matvec_q4_k".
std::string shader_name(std::string_view operation, const WeightFormat& format);

}  // namespace moepack
